// When a question may be answered. Pure: the times are parameters.

/** A question cannot be answered for this long after it appeared, and after a key was typed. */
export const PAUSE_MS = 1000;

/** @typedef {{ now: number, shownAt: number, typedAt: number, focusedAt: number, endSeen: boolean, isLive: boolean, isBusy: boolean, isCut?: boolean }} Moment */

/** Why the question cannot be answered now; null if it can. @param {Moment} moment @returns {string | null} */
export function hindrance(moment) {
  if (moment.isBusy) return "the answer is on its way";
  if (!moment.isLive) return "offline: an answer would not arrive";
  if (moment.isCut) return "a part of the call is not shown here";
  if (!moment.endSeen) return "scroll to the end of the call first";
  if (moment.now - Math.max(moment.shownAt, moment.focusedAt) < PAUSE_MS) return "it has just appeared";
  if (moment.now - moment.typedAt < PAUSE_MS) return "you are typing";
  return null;
}

/** Milliseconds until the pause is over, for a timer; 0 if it is. @param {Moment} moment */
export function waitMs(moment) {
  return Math.max(0, PAUSE_MS - (moment.now - Math.max(moment.shownAt, moment.focusedAt, moment.typedAt)));
}

/** Denying also needs the pause, but not a look at the end of the call: a refusal harms nothing. @param {Moment} moment */
export const denyHindrance = (moment) => hindrance({ ...moment, endSeen: true, isCut: false });

/** How long an "always" can hold. */
export const KEEP_FOR = [
  { id: "session", title: "This session" },
  { id: "repo", title: "This repo" },
  { id: "everywhere", title: "Everywhere" },
];

/** The rules in a text, one on each line. @param {string} text @returns {string[]} */
export const rulesOf = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
