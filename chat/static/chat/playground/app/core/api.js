// @ts-check
// The routes below /playground/api/: JSON, the session's cookie, the CSRF token.
import { t } from "./i18n.js";
import { page } from "./page.js";

export class ApiProblem extends Error {
  /** @param {{message: string, code: string, param?: string | null, status?: number, request_id?: string}} fields */
  constructor({ message, code, param = null, status = 0, request_id }) {
    super(message);
    this.code = code;
    this.param = param;
    this.status = status;
    this.requestId = request_id;
  }

  /** Whether the same request may well succeed later. A proxy without its server may say 404, and a network that wants a sign-in 200 with a page. */
  get isPassing() {
    const isOfOther = this.code === "unreachable" && (this.status < 400 || this.status === 404);
    return this.status >= 500 || this.status === 0 || isOfOther;
  }
}

const token = () => /(?:^|; )lightcone_csrf=([^;]*)/.exec(document.cookie)?.[1] ?? "";

/**
 * Send a request and return the JSON of its answer. Throws ApiProblem; `unreachable` where there is no answer at all.
 * @param {string} method
 * @param {string} path below /playground/api/
 * @param {unknown} [body]
 * @param {{signal?: AbortSignal, keepalive?: boolean}} [options]
 * @returns {Promise<any>}
 */
export const api = (method, path, body, options = {}) => ask(method, path, body, options, (response) => response.json());

/** Ask for a file and return it. Throws ApiProblem. @param {string} path @param {unknown} body @returns {Promise<Blob>} */
export const apiFile = (path, body) => ask("POST", path, body, {}, (response) => response.blob());

/** Send a file as it is, and return the JSON of the answer. Throws ApiProblem. @param {string} path @param {Blob} file @returns {Promise<any>} */
export const sendFile = (path, file) => ask("POST", path, file, {}, (response) => response.json());

/**
 * @param {string} method @param {string} path @param {unknown} body @param {{signal?: AbortSignal, keepalive?: boolean}} options
 * @param {(response: Response) => Promise<any>} read what an answer is read as that is no refusal
 */
async function ask(method, path, body, options, read) {
  const isFile = body instanceof Blob;
  const type = isFile ? "application/octet-stream" : "application/json";
  const headers = { "X-CSRFToken": token(), "X-Lightcone-User": String(page.user), Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": type }) };
  /** @type {Response | undefined} */
  let response;
  /** @type {any} */
  let answer;
  try {
    response = await fetch(`/playground/api/${path}`, { method, headers, body: isFile || body === undefined ? body : JSON.stringify(body), ...options });
    answer = await (response.ok ? read(response) : response.json());
  } catch (error) {
    if (options.signal?.aborted) throw error;
    // No answer, a part of one, or the page of something between here and the server.
    throw new ApiProblem({ code: "unreachable", message: t("The server cannot be reached."), status: response?.status });
  }
  if (response.ok) return answer;
  if (response.status === 401) location.reload(); // signed out: the page leads to the sign-in
  const message = response.statusText || t("The server cannot be reached.");
  throw new ApiProblem({ message, code: "failed", ...answer?.error, status: response.status });
}

/** Do something with the server, and return why it refuses; "" if it does not. @param {() => Promise<unknown>} act */
export async function refusalOf(act) {
  try {
    await act();
    return "";
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    return error.message;
  }
}
