// Parses server-sent events. Pure: text in, events out.

/** @typedef {{ id: string, event: string, data: string }} Sent */

/** A parser that is fed pieces of text as they come. */
export function sseParser() {
  let rest = "";
  let id = "";
  let event = "";
  let data = /** @type {string[]} */ ([]);
  /** @param {string} piece @returns {Sent[]} */
  return function feed(piece) {
    const found = /** @type {Sent[]} */ ([]);
    rest += piece;
    for (;;) {
      const end = rest.search(/\r\n|\n|\r(?!$)/);
      if (end < 0) return found;
      const line = rest.slice(0, end);
      rest = rest.slice(end + (rest.startsWith("\r\n", end) ? 2 : 1));
      if (line === "") {
        if (data.length > 0) found.push({ id, event: event || "message", data: data.join("\n") });
        event = "";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") data.push(value);
      else if (name === "event") event = value;
      else if (name === "id") id = value;
    }
  };
}
