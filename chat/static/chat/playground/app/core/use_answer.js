// @ts-check
// Answers of the server to what is being typed.
import { useEffect, useState } from "../../../vendor/preact.js";
import { api, ApiProblem } from "./api.js";

/**
 * Post a body once it has been the same for a while. Null until the server has answered to this one, where it refuses, and where there is nothing to ask.
 * @param {string} path below /playground/api/
 * @param {object | null} body
 * @param {number} quietMs
 */
export function useAnswer(path, body, quietMs) {
  const text = JSON.stringify(body);
  const [found, setFound] = useState(/** @type {{text: string, answer: any} | null} */ (null));
  useEffect(() => {
    if (!body) return undefined;
    const asking = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const answer = await api("POST", path, body, { signal: asking.signal });
        setFound({ text, answer });
      } catch (error) {
        if (!asking.signal.aborted && !(error instanceof ApiProblem)) throw error;
      }
    }, quietMs);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [text]);
  return found?.text === text ? found.answer : null;
}
