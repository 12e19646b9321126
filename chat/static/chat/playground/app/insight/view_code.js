// @ts-check
// View code: the request of an answer, or the one that would be sent now, as programs. The server writes them.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import { api, ApiProblem } from "../core/api.js";
import { textOf } from "../core/answers.js";
import { number, t } from "../core/i18n.js";
import { page } from "../core/page.js";
import { colourCode } from "../text/code.js";
import { CopyButton, Dialog, Tabs } from "../view/controls.js";
import { closeDialog, openDialog } from "../view/layers.js";
import { requestBehind, requestOfDraft } from "./asked.js";

/** @import { Chat } from "../core/chat.js" */
/** @import { ChatRequest } from "../core/requests.js" */
/** @import { Turn } from "../core/tree.js" */

/** @typedef {{name: string, title: string, language: string, text: string}} Snippet */

const ORDER = ["curl", "python", "tzafon", "typescript", "raw", "resume"];
const LANGUAGES = /** @type {Record<string, string>} */ ({ shell: "bash" });
const EXAMPLE = "Hello!";
/** Contents of a file in base64, of which the beginning is shown; copies have all of it. */
const LONG_CONTENT = /[A-Za-z0-9+/]{2000,}={0,2}/g;

/** Show the code of an answer's request, or of what would be sent now. @param {Chat} open @param {Turn} [turn] */
export function showCode(open, turn) {
  const answer = turn?.facts.role === "assistant" ? turn : undefined;
  openDialog(() => html`<${CodeDialog} open=${open} turn=${answer} />`);
}

/** The name of the tab that was looked at last. */
let lastTab = ORDER[0];

/** @param {{open: Chat, turn?: Turn}} props */
function CodeDialog({ open, turn }) {
  const last = open.path.peek().at(-1)?.facts.role ?? "assistant";
  const asked = turn ? requestBehind(open, turn) : requestOfDraft(open, last === "assistant" ? EXAMPLE : "");
  const [isStream, setStream] = useState(asked.stream === true);
  const [name, setName] = useState(lastTab);
  const { stream: _, ...rest } = asked;
  const request = isStream ? { ...rest, stream: true } : rest;
  const { snippets, reports, problem } = useSnippets(request, turn, open);
  const shown = snippets?.find((snippet) => snippet.name === name) ?? snippets?.[0];
  const isExample = !turn && !open.draft.peek().text.trim() && !open.draft.peek().files?.length && request.messages.at(-1)?.content === EXAMPLE;
  const pick = (/** @type {string} */ to) => setName((lastTab = to));
  return html`<${Dialog} title=${t("View code")} class="is-wide view-code" onClose=${closeDialog}>
    <p class="hint">${turn ? t("The request of this answer, as it was sent.") : t("The request that would be sent now.")}
      ${isExample && ` ${t("Nothing is written: “{text}” stands for your message.", { text: EXAMPLE })}`}</p>
    ${snippets && html`<${Tabs} label=${t("Languages")} tabs=${snippets.map(({ name: id, title }) => ({ id, title }))} current=${shown?.name ?? ""} onPick=${pick} />`}
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${!snippets && !problem && html`<p class="hint" role="status">${t("Writing the code …")}</p>`}
    ${shown && html`<div class="code-tools">
        <label class="token-switch"><input type="checkbox" checked=${isStream}
          onChange=${(/** @type {any} */ event) => setStream(event.target.checked)} />${t("Stream the answer")}</label>
        <span class="code-acts"><${CopyButton} withText text=${() => shown.text} />
          ${reports && html`<${CopyButton} withText label=${t("Copy with answer")}
            text=${() => reports.find((other) => other.name === shown.name)?.text ?? shown.text} />`}</span>
      </div>
      <${Code} snippet=${shown} />
      <p class="hint">${t("The key is read from the environment:")} <code>export LIGHTCONE_API_KEY=…</code>
        ${page.has_console && html` · <a href=${page.urls.console}>${t("Make a key in the console")}</a>`}</p>`}
  <//>`;
}

/** Have the server write the code, also with the answer where there is one. @param {ChatRequest} request @param {Turn | undefined} turn @param {Chat} open */
function useSnippets(request, turn, open) {
  const [made, setMade] = useState(/** @type {{snippets?: Snippet[], reports?: Snippet[], problem?: string}} */ ({}));
  const body = JSON.stringify(request);
  useEffect(() => {
    const aborting = new AbortController();
    const answer = turn && !turn.isRunning ? textOf(turn.facts.content, open.shownChoice(turn)) : "";
    const run = turn?.facts.run ? { run: turn.facts.run } : {};
    const write = async (/** @type {object} */ more) => inOrder((await api("POST", "code", { request, ...run, ...more }, { signal: aborting.signal })).snippets);
    Promise.all([write({}), answer ? write({ answer }) : undefined])
      .then(([snippets, reports]) => setMade({ snippets, reports }))
      .catch((error) => {
        if (aborting.signal.aborted) return;
        if (!(error instanceof ApiProblem)) throw error;
        // The request itself can always be shown.
        setMade({ snippets: [{ name: "raw", title: "JSON", language: "json", text: `${JSON.stringify(request, null, 2)}\n` }], problem: error.message });
      });
    return () => aborting.abort();
  }, [body]);
  return made;
}

/** @param {Snippet[]} snippets */
const inOrder = (snippets) => [...snippets].sort((a, b) => placeOf(a) - placeOf(b));

/** @param {Snippet} snippet */
const placeOf = ({ name }) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);

/** A program with colours, which come once the highlighter is there. @param {{snippet: Snippet}} props */
function Code({ snippet: { language, text } }) {
  const ref = useRef(/** @type {HTMLPreElement | null} */ (null));
  useLayoutEffect(() => {
    if (ref.current) colourCode(ref.current);
  }, [language, text]);
  const shown = text.replace(LONG_CONTENT, (found) => t("{begin}… ({n} characters)", { begin: found.slice(0, 48), n: number(found.length) }));
  return html`<pre ref=${ref} key=${`${language} ${text}`} class="snippet" tabindex="0"><code data-language=${LANGUAGES[language] ?? language}>${shown}</code></pre>`;
}
