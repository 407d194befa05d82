// The entries that match what was typed, the best first. Pure.

/** How well a text matches; null if it does not. Letters must be in order; word beginnings and runs score higher. @param {string} query @param {string} text @returns {number | null} */
export function fit(query, text) {
  const [wanted, within] = [query.toLowerCase(), text.toLowerCase()];
  let score = 0;
  let at = -1;
  for (const letter of wanted) {
    if (letter === " ") continue;
    const found = within.indexOf(letter, at + 1);
    if (found < 0) return null;
    if (found === at + 1) score += 3;
    if (found === 0 || /[^a-z0-9]/.test(within[found - 1])) score += 2;
    score -= Math.min(found - at - 1, 5) * 0.2;
    at = found;
  }
  return score - within.length * 0.01;
}

/** @template {{ title: string, more?: string }} T @param {string} query @param {T[]} entries @param {number} limit @returns {T[]} */
export function best(query, entries, limit) {
  if (query.trim() === "") return entries.slice(0, limit);
  return entries
    .map((entry) => ({ entry, score: Math.max(fit(query, entry.title) ?? -Infinity, (fit(query, entry.more ?? "") ?? -Infinity) - 2) }))
    .filter(({ score }) => score > -Infinity)
    .sort((one, other) => other.score - one.score)
    .slice(0, limit)
    .map(({ entry }) => entry);
}
