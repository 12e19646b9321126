// @ts-check
// The box where messages are written, with what waits to be sent.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import * as app from "../core/app.js";
import { plural, t } from "../core/i18n.js";
import { ContextMeter, fits } from "../insight/context_meter.js";
import { preferences } from "../palette/preferences.js";
import { shown } from "../palette/strokes.js";
import { isHeldBack } from "../parameters/focus.js";
import { readFiles } from "./attachments.js";
import { IconButton } from "./controls.js";
import { Files } from "./files.js";
import { fit } from "./fitting.js";
import { MisfitLine, misfitOf } from "./fitting_model.js";
import { Icon, StopIcon } from "./icons.js";
import { lazy } from "./lazy.js";
import { ModelLine } from "./model_picker.js";

/** @import { ComponentChildren } from "../../../vendor/preact.js" */
/** @import { Chat } from "../core/chat.js" */
/** @import { DraftFile } from "../core/types.js" */

const RecordButton = lazy(async () => (await import("./recording.js")).RecordButton);
/** @param {string} problem */
const say = (problem) => (app.notice.value = { text: problem, isProblem: true });
/** Whether the model of a chat takes sound. @param {Chat} chat */
const hears = (chat) => Boolean(app.modelOf(chat.settings.value.model)?.modalities?.includes("audio"));
const isTouch = matchMedia("(pointer: coarse)");

/**
 * `onSend`: what to do instead of sending it to this chat; `asked`: the chats that it is sent to; `prefix`: of the ids, where there are several;
 * `children`: what stands below the box.
 * @param {{open: Chat, onSend?: (text: string, files: DraftFile[]) => void, asked?: Chat[], prefix?: string, children?: ComponentChildren}} props
 */
export function Composer({ open, children, asked = [open], prefix = "", onSend = (text, files) => acts.send(open, text, files, { comesBack: true }) }) {
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const taking = useRef(Promise.resolve());
  const present = useRef(open);
  present.current = open;
  const [isOver, setOver] = useState(false);
  const [pending, setPending] = useState(/** @type {string[]} */ ([]));
  const draft = open.draft.value;
  const files = draft.files ?? [];
  const isBusy = open.isBusy.value;
  const { enterSends } = preferences.value;
  const isCounting = open.isCounting.value;
  const isMessage = Boolean(draft.text.trim() || files.length) && Boolean(open.settings.value.model);
  const misfit = misfitOf(open, asked);
  const isSendable = isMessage && open.excess.value === 0 && !isCounting && !misfit && pending.length === 0;
  useLayoutEffect(() => {
    if (area.current) fit(area.current);
  }, [draft.text, open.id]);
  useEffect(() => {
    if (!isTouch.matches) area.current?.focus({ preventScroll: true });
  }, [open.id]);

  const change = (/** @type {Partial<typeof draft>} */ fields) => (open.draft.value = { ...open.draft.value, ...fields });
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    // What was left while it was counted stays in its box.
    if (!isMessage || misfit || pending.length > 0 || isHeldBack(open) || !(await fits(open)) || present.current !== open) return;
    const written = open.draft.value; // files may have come meanwhile
    onSend(written.text.trim(), written.files ?? []);
  };
  // One lot after the other: each counts the files of those before it.
  const take = (/** @type {Iterable<File> | null | undefined} */ list) => (taking.current = taking.current.then(attach([...(list ?? [])])));
  const attach = (/** @type {File[]} */ chosen) => async () => {
    if (chosen.length === 0) return;
    setPending(chosen.map(({ name }) => name));
    const { read, problem } = await readFiles(open, chosen).finally(() => setPending([]));
    change({ files: [...(open.draft.value.files ?? []), ...read] });
    if (problem) say(problem);
  };
  const sizing = {
    open,
    /** @param {DraftFile} file @param {() => Promise<{read: DraftFile[], problem: string}>} make */
    change: (file, make) => {
      taking.current = taking.current.then(async () => {
        if (!open.draft.value.files?.includes(file)) return; // it was removed meanwhile
        setPending([file.name]);
        const { read, problem } = await make().finally(() => setPending([]));
        change({ files: (open.draft.value.files ?? []).map((other) => (other === file ? (read[0] ?? file) : other)) });
        if (problem) say(problem);
      });
    },
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    // On a touch screen Enter is the only way to a new line.
    const hasMod = event.ctrlKey || event.metaKey;
    const sends = hasMod || (enterSends && !event.shiftKey && !isTouch.matches);
    if (event.key === "Enter" && !event.isComposing && sends) send(event);
  };
  const drop = (/** @type {DragEvent} */ event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    event.stopPropagation();
    take(event.dataTransfer.files);
  };
  const paste = (/** @type {ClipboardEvent} */ event) => {
    if (!event.clipboardData?.files.length || isOfOffice(event.clipboardData)) return;
    event.preventDefault();
    take(event.clipboardData.files);
  };
  useAnywhere(prefix === "", { drop, paste, setOver });
  const whyNot = pending.length ? t("Wait for the files to be read") : misfit?.text;
  const sendTitle = isBusy ? t("Send when the answer has ended") : `${t("Send")} (${enterSends ? "Enter" : shown("Mod+Enter")})`;

  return html`<form class="composer" id=${`${prefix}composer`} aria-label=${t("New message")} onSubmit=${send}
    onDragOver=${(/** @type {Event} */ event) => event.preventDefault()} onDrop=${drop}>
    ${misfit ? html`<${MisfitLine} misfit=${misfit} chats=${asked} id=${`${prefix}misfit`} />` : html`<${ModelLine} open=${open} />`}
    <${Queue} open=${open} />
    <${Files} files=${files} pending=${pending} sizing=${sizing} onRemove=${(/** @type {number} */ at) => change({ files: files.filter((_, other) => other !== at) })} />
    ${isOver && html`<div class="drop-here" aria-hidden="true"><${Icon} name="image" size=${28} /><span>${t("Drop files to attach them")}</span></div>`}
    <div class="composer-box">
      <${IconButton} icon="clip" label=${t("Attach images and files")} onClick=${() => picker.current?.click()} />
      ${asked.length > 0 && asked.every(hears) && html`<${RecordButton} isOff=${pending.length > 0 || isCounting} onDone=${(/** @type {File} */ file) => take([file])} onProblem=${say} />`}
      <input ref=${picker} type="file" multiple hidden onChange=${(/** @type {any} */ event) => take(event.target.files).then(() => (event.target.value = ""))} />
      <label class="visually-hidden" for=${`${prefix}composer-text`}>${t("Message")}</label>
      <textarea ref=${area} id=${`${prefix}composer-text`} rows="1" placeholder=${t("Send a message")} value=${draft.text} readonly=${isCounting} enterkeyhint=${isTouch.matches ? "enter" : "send"}
        onInput=${(/** @type {any} */ event) => change({ text: event.target.value })} onKeyDown=${key} onPaste=${paste}></textarea>
      ${isBusy && html`<button class="button button-primary button-icon" id=${`${prefix}stop`} type="button" aria-label=${t("Stop")} title=${`${t("Stop")} (Esc)`} onClick=${() => acts.stop(open)}><${StopIcon} /></button>`}
      ${(!isBusy || isSendable) && html`<button class="button button-primary button-icon" id=${`${prefix}send`} type="submit" aria-label=${isBusy ? t("Send when the answer has ended") : t("Send")}
        title=${whyNot ?? sendTitle} aria-describedby=${misfit ? `${prefix}misfit` : undefined} aria-disabled=${!isSendable}><${Icon} name="send" size=${20} /></button>`}
    </div>
    <${ContextMeter} open=${open}>${children}<//>
  </form>`;
}

/** Whether text was copied, of which office programs give a picture as well. @param {DataTransfer} copied */
const isOfOffice = ({ types }) => types.includes("text/plain") && types.includes("text/html");

const TYPED_IN = "input, textarea, [contenteditable]";

/**
 * Take files that are dropped or pasted anywhere on the page, but into a dialog or another field.
 * @param {boolean} isOn
 * @param {{drop: (event: DragEvent) => void, paste: (event: ClipboardEvent) => void, setOver: (isOver: boolean) => void}} acts
 */
function useAnywhere(isOn, { drop, paste, setOver }) {
  const latest = useRef({ drop, paste });
  latest.current = { drop, paste };
  useEffect(() => {
    if (!isOn) return undefined;
    const isElsewhere = () => document.querySelector("dialog[open]") !== null;
    const over = (/** @type {DragEvent} */ event) => {
      if (isElsewhere() || !event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(true);
    };
    const left = (/** @type {DragEvent} */ event) => event.relatedTarget === null && setOver(false);
    const ends = () => setOver(false);
    const dropped = (/** @type {DragEvent} */ event) => {
      if (!isElsewhere() && !event.defaultPrevented) latest.current.drop(event);
    };
    const pasted = (/** @type {ClipboardEvent} */ event) => {
      const isTyping = event.target instanceof Element && event.target.closest(TYPED_IN);
      if (!isElsewhere() && !isTyping) latest.current.paste(event);
    };
    document.addEventListener("dragover", over);
    document.addEventListener("dragleave", left);
    document.addEventListener("drop", ends, true); // before a form takes it
    document.addEventListener("drop", dropped);
    document.addEventListener("paste", pasted);
    return () => {
      document.removeEventListener("dragover", over);
      document.removeEventListener("dragleave", left);
      document.removeEventListener("drop", ends, true);
      document.removeEventListener("drop", dropped);
      document.removeEventListener("paste", pasted);
    };
  }, [isOn]);
}

/** Messages that wait for the end of the running answer. @param {{open: Chat}} props */
function Queue({ open }) {
  const { queue = [] } = open.draft.value;
  if (queue.length === 0) return null;
  const edit = (/** @type {string} */ id) => {
    const message = acts.withdraw(open, id);
    const { text, files = [] } = open.draft.value;
    if (message) open.draft.value = { ...open.draft.value, text: [message.text, text].filter(Boolean).join("\n\n"), files: [...(message.files ?? []), ...files] };
  };
  return html`<div class="queue" role="group" aria-label=${t("Waiting messages")}>
    <p class="hint">${open.isBusy.value ? plural(queue.length, "One message waits for the end of the answer.", "{n} messages wait for the end of the answer.") : t("The answer did not finish; send what waits when you like.")}
      ${!open.isBusy.value && html`<button type="button" class="button button-small" onClick=${() => acts.sendWaiting(open)}>${t("Send now")}</button>`}</p>
    <ol>${queue.map(
      (message) => html`<li key=${message.id} class="queued"><span>${message.text || message.files?.map(({ name }) => name).join(", ")}</span>
        <${IconButton} icon="edit" size=${16} label=${t("Edit the waiting message")} onClick=${() => edit(message.id)} />
        <${IconButton} icon="close" size=${16} label=${t("Withdraw the waiting message")} onClick=${() => acts.withdraw(open, message.id)} /></li>`,
    )}</ol>
  </div>`;
}
