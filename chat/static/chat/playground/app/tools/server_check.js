// @ts-check
// What the server says of a schema, an expression or a grammar, and whether a text satisfies it.
import { useEffect, useState } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";

/** @typedef {{is_valid: boolean, problems: {message: string, path?: string}[], matches: boolean | null, example: any}} Checked */

const WAIT_MS = 350;

/** Null until the server has answered, and where it cannot. @param {string} kind "" asks nothing @param {any} value @param {string} [text] @returns {Checked | null} */
export function useServerCheck(kind, value, text) {
  const body = JSON.stringify({ kind, value, ...(text === undefined ? {} : { text }) });
  const [answer, setAnswer] = useState(/** @type {{body: string, checked: Checked} | null} */ (null));
  useEffect(() => {
    if (!kind) return undefined;
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const checked = await api("POST", "check", JSON.parse(body), { signal: control.signal });
        setAnswer({ body, checked });
      } catch (error) {
        if (!(error instanceof ApiProblem) && !control.signal.aborted) throw error;
      }
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [body]);
  return answer?.body === body ? answer.checked : null;
}
