// The broker's entries as text. Pure.

/** A broadcast's recipients counted: "3 acked, 1 held, 1 failed". @param {any[]} recipients */
export function tally(recipients) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const it of recipients) {
    const { word } = stateOf(it);
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].map(([word, count]) => `${count} ${word}`).join(", ");
}

/** The delivery state of a message. @param {any} it */
export function stateOf(it) {
  if (it.status === "completed") return { word: "acked", tone: "ok" };
  if (it.status === "canceled") return { word: "canceled", tone: "fg3" };
  switch (it.delivery) {
    case "failed":
      return { word: "failed", tone: "bad" };
    case "held":
      return { word: "held", tone: "wait" };
    case "typed":
    case "confirmed":
      return { word: "delivered", tone: "run" };
    default:
      return { word: "stored", tone: "fg3" };
  }
}

/** The recipient of a line: "@name text" or "@all text". Names may contain blanks; the longest match wins. @param {string} text @param {{ agent_id: string, name: string }[]} agents @returns {{ to: string, name: string, text: string } | null} */
export function address(text, agents) {
  if (!text.startsWith("@")) return null;
  const all = [{ agent_id: "*", name: "all" }, ...agents];
  const fits = all.filter((it) => text.slice(1).toLowerCase().startsWith(it.name.toLowerCase()) && /^(\s|$|[:,])/.test(text.slice(1 + it.name.length)));
  const best = fits.sort((one, other) => other.name.length - one.name.length)[0];
  if (!best) return null;
  return { to: best.agent_id, name: best.name, text: text.slice(1 + best.name.length).replace(/^[:,]?\s*/, "") };
}
