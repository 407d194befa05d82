// When a question may be answered. Pure: times are given.

/** So long after it appeared, and after anything was typed, nothing answers a question. */
export const PAUSE_MS = 1000;

/** @typedef {{ now: number, shownAt: number, typedAt: number, focusedAt: number, endSeen: boolean, isLive: boolean, isBusy: boolean, isCut?: boolean }} Moment */

/** Why it cannot be answered now; null if it can. @param {Moment} moment @returns {string | null} */
export function hindrance(moment) {
  if (moment.isBusy) return "the answer is on its way";
  if (!moment.isLive) return "offline: an answer would not arrive";
  if (moment.isCut) return "a part of the call is not shown here";
  if (!moment.endSeen) return "scroll to the end of the call first";
  if (moment.now - Math.max(moment.shownAt, moment.focusedAt) < PAUSE_MS) return "it has just appeared";
  if (moment.now - moment.typedAt < PAUSE_MS) return "you are typing";
  return null;
}

/** When time alone has passed, for a timer; 0 if time does not matter. @param {Moment} moment */
export function waitMs(moment) {
  return Math.max(0, PAUSE_MS - (moment.now - Math.max(moment.shownAt, moment.focusedAt, moment.typedAt)));
}

/** Denying needs the pause, too, but not the end: a refusal harms nothing. @param {Moment} moment */
export const denyHindrance = (moment) => hindrance({ ...moment, endSeen: true, isCut: false });
