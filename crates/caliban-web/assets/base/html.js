// What every component imports: `html` bound to Preact, the hooks and the signals.
import { createElement, Fragment, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(createElement);
export { createElement, Fragment, render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "../vendor/hooks.js";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "../vendor/signals.js";
