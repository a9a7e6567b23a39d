// What views share: asking again and again, and the place in the address.

import { useEffect, useState } from "./vendor/preact.js";
import { get, place } from "./api.js";

/** Ask for a path now and then while the tab is seen; what was known stays when an answer fails.
 *
 * Without `every` it asks once; a path of null asks nothing.
 */
export function usePoll(path, every = 2000) {
  const [state, setState] = useState({ path: null, data: null, error: null });
  useEffect(() => {
    if (path === null) return undefined;
    const control = new AbortController();
    let timer = 0;
    let asking = false;
    async function round() {
      clearTimeout(timer);
      if (asking || control.signal.aborted) return;
      asking = true;
      try {
        if (!document.hidden) {
          const data = await get(path, control.signal);
          if (!control.signal.aborted) setState({ path, data, error: null });
        }
      } catch (error) {
        if (!control.signal.aborted) {
          setState((old) => ({ path, data: old.path === path ? old.data : null, error }));
        }
      }
      asking = false;
      if (every && !control.signal.aborted) timer = setTimeout(round, every);
    }
    const wake = () => (every && !document.hidden ? round() : undefined);
    document.addEventListener("visibilitychange", wake);
    round();
    return () => {
      control.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
    };
  }, [path, every]);
  const fresh = state.path === path;
  return { data: fresh ? state.data : null, error: fresh ? state.error : null };
}

/** The place in the address, which changes with links and with the browser's buttons. */
export function usePlace() {
  const [here, setHere] = useState(place());
  useEffect(() => {
    const moved = () => setHere(place());
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return here;
}

/** The two last answers, for rates between them; one that is shown again is no new one. */
export function usePair(data) {
  const [pair, setPair] = useState({ before: null, now: null });
  useEffect(() => {
    setPair((old) => (old.now && old.now.now === data.now ? old : { before: old.now, now: data }));
  }, [data.now]);
  return pair;
}

/** Whether the browser shows dark colours. */
export function useDark() {
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = (event) => setDark(event.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}
