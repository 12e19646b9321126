// @ts-check
// Details of an answer: why it took its time, what it cost, what it was asked with.
import { html, useState } from "../../../vendor/preact.js";
import * as acts from "../core/acts.js";
import { api, refusalOf } from "../core/api.js";
import * as app from "../core/app.js";
import { moment, number, plural, t } from "../core/i18n.js";
import { CopyButton, Dialog } from "../view/controls.js";
import { closeDialog } from "../view/layers.js";
import { requestBehind } from "./asked.js";
import { ChatSum } from "./counters.js";
import { costText, draftsText, duration, endOf, money, partName, partsOf, rateText, storyOf, tokenRows } from "./facts.js";

/** @import { ComponentChildren } from "../../../vendor/preact.js" */
/** @import { Chat } from "../core/chat.js" */
/** @import { Turn } from "../core/tree.js" */

/** @param {{open: Chat, turn: Turn}} props */
export function Insight({ open, turn }) {
  const { usage, timings } = turn.facts;
  return html`<${Dialog} title=${t("Details")} class="insight" onClose=${closeDialog}>
    <${Story} turn=${turn} />
    ${timings?.total_s != null && html`<${TimeLine} turn=${turn} />`}
    ${usage && html`<${Tokens} turn=${turn} />`}
    <${Facts} open=${open} turn=${turn} />
    <${Prompt} open=${open} turn=${turn} />
    <${ChatSum} open=${open} />
  <//>`;
}

/** The answer's time in a sentence, with the longest part marked. @param {{turn: Turn}} props */
function Story({ turn }) {
  const story = storyOf(turn);
  if (!story) {
    const why = turn.isRunning ? t("The answer is still running; its figures come with its end.") : t("No times are known of this answer.");
    return html`<p class="story">${why}</p>`;
  }
  return html`<p class="story"><strong>${story.total}</strong>${": "}${story.parts.map(
    ({ text, isSlowest }, at) => html`${at > 0 && ", "}${isSlowest ? html`<strong>${text}</strong>` : text}`,
  )}${"."}</p>`;
}

/** @param {{turn: Turn}} props */
function TimeLine({ turn }) {
  const parts = partsOf(turn.facts.timings);
  return html`<section class="insight-part" aria-label=${t("Time")}>
    <div class="time-line" aria-hidden="true">${parts.map(
      ({ name, seconds }) => html`<span key=${name} class=${`time-part time-${name}`} style=${{ flexGrow: 1000 * seconds }}
        title=${`${partName(name)}: ${duration(seconds)}`}></span>`,
    )}</div>
    <div class="table-frame" tabindex="0" role="region" aria-label=${t("Time by part")}><table class="facts-table">
      <thead><tr><th scope="col">${t("Part")}</th><th scope="col">${t("Begins after")}</th><th scope="col">${t("Takes")}</th></tr></thead>
      <tbody>${parts.map(
        ({ name, start, seconds }) => html`<tr key=${name}><th scope="row"><span class=${`swatch time-${name}`} aria-hidden="true"></span>${partName(name)}</th>
          <td>${duration(start)}</td><td>${duration(seconds)}</td></tr>`,
      )}</tbody>
    </table></div>
  </section>`;
}

/** Tokens, their rates and prices. @param {{turn: Turn}} props */
function Tokens({ turn }) {
  const { usage, timings, cost, model } = turn.facts;
  if (!usage) return null;
  const price = app.modelOf(model ?? "")?.price;
  const rows = tokenRows(usage, timings, cost ? price : null);
  const sum = rows.reduce((total, row) => total + (row.cost ?? 0), 0);
  const isOldPrice = cost && price && Math.abs(sum - Number(cost.amount)) > 1e-9 + 0.001 * sum;
  const each = price ? t("Price of {n}", { n: number(price.per_tokens) }) : "";
  const notes = [
    usage.reasoning_tokens ? t("{n} of the answer's tokens are reasoning.", { n: number(usage.reasoning_tokens) }) : "",
    draftsText(usage),
    isOldPrice ? t("The prices have changed since: the sum is that of the answer's time.") : "",
  ].filter(Boolean);
  return html`<section class="insight-part" aria-label=${t("Tokens and cost")}>
    <div class="table-frame" tabindex="0" role="region" aria-label=${t("Tokens and cost")}><table class="facts-table">
      <thead><tr><th scope="col">${t("Kind")}</th><th scope="col">${t("Tokens")}</th><th scope="col">${t("Rate")}</th>
        ${cost && price && html`<th scope="col" class="unit-price">${each}</th><th scope="col">${t("Cost")}</th>`}</tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr key=${row.name}><th scope="row">${row.name}</th><td>${number(row.num)}</td><td>${row.rate ? rateText(row.rate) : "–"}</td>
          ${cost && price && html`<td class="unit-price">${row.price ? money(Number(row.price), price.currency) : "–"}</td>
          <td>${row.cost === null ? "–" : money(row.cost, price.currency)}</td>`}</tr>`,
      )}</tbody>
      <tfoot><tr><th scope="row">${t("Sum")}</th><td>${number(usage.prompt_tokens + usage.completion_tokens)}</td><td></td>
        ${cost && price && html`<td class="unit-price"></td><td title=${`${cost.amount} ${cost.currency}`}><strong>${costText(cost)}</strong></td>`}</tr></tfoot>
    </table></div>
    ${cost && !price && html`<p class="hint">${t("Cost: {cost}. The model's prices are not known any more.", { cost: costText(cost) })}</p>`}
    ${!cost && html`<p class="hint">${t("The model has no price, so that its answers have no cost.")}</p>`}
    ${notes.map((note) => html`<p class="hint" key=${note}>${note}</p>`)}
    ${turn.choices.length > 1 && html`<p class="hint">${t("Of the answers:")} ${turn.choices.map(({ tokens = 0 }) => number(tokens)).join(" + ")}</p>`}
  </section>`;
}

/** @param {{open: Chat, turn: Turn}} props */
function Facts({ open, turn }) {
  const { model, seed, parameters, request_id: id, timings, error, time, run } = turn.facts;
  const { reserve } = turn.status.value;
  const ends = turn.choices.map((choice, at) => endOf(turn, at) || (choice.finish_reason === "stop" ? t("by itself") : (choice.finish_reason ?? "")));
  const end = error ? t("failed: {message}", { message: error.message }) : [...new Set(ends)].filter(Boolean).join(", ");
  return html`<dl class="insight-facts">
    ${end && html`<${Fact} name=${t("End")}>${end}<//>`}
    ${model && html`<${Fact} name=${t("Model")}>${model}<//>`}
    ${time && html`<${Fact} name=${t("Asked at")}><time dateTime=${time}>${moment(new Date(time), { dateStyle: "medium", timeStyle: "medium" })}</time><//>`}
    ${seed != null && html`<${Fact} name=${t("Seed")}><code>${seed}</code><${CopyButton} label=${t("Copy the seed")} text=${() => String(seed)} />
      <button type="button" class="button button-small" disabled=${open.isBusy.value} onClick=${() => repeat(open, turn)}>${t("Repeat with this seed")}</button><//>`}
    ${(timings?.attempts ?? 1) > 1 && html`<${Fact} name=${t("Attempts")}>
      ${t("{n}: what computed it was lost, and it went on elsewhere", { n: timings?.attempts ?? 1 })}<//>`}
    ${reserve && html`<${Fact} name=${t("At most")}>${plural(reserve, "one token", "{n} tokens")}<//>`}
    ${id && html`<${Fact} name=${t("Request")}><code>${id}</code><${CopyButton} label=${t("Copy the request's id")} text=${() => id} />
      ${isOwnPath(timings?.log_url) && html`<a href=${timings?.log_url} target="_blank">${t("Open in the console")}</a>`}<//>`}
    ${!id && run && html`<${Fact} name=${t("Run")}><code>${run}</code><//>`}
    <${Fact} name=${t("Parameters")}>${parameters && Object.keys(parameters.fields).length > 0
      ? html`<pre class="insight-json" tabindex="0">${JSON.stringify(parameters.fields, null, 2)}</pre>`
      : t("none: all are the model's defaults")}<//>
  </dl>`;
}

/** @param {{name: string, children: ComponentChildren}} props */
const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

/** Imported chats may say anything. @param {string} [url] */
const isOwnPath = (url) => url !== undefined && /^\/(?![\/\\])/.test(url);

/** @param {Chat} open @param {Turn} turn */
function repeat(open, turn) {
  const { model, seed, parameters = { system: "", fields: {} } } = turn.facts;
  closeDialog();
  acts.regenerate(open, turn, {
    model: model ?? open.settings.value.model, system: parameters.system, parameters: { ...parameters.fields, seed }, prefix: parameters.prefix,
  });
}

/** @typedef {{prompt: string, num_tokens: number, num_messages: number}} Rendered */

/** The prompt as the template renders it, read when it is first opened. @param {{open: Chat, turn: Turn}} props */
function Prompt({ open, turn }) {
  const [found, setFound] = useState(/** @type {{rendered?: Rendered, problem?: string} | null} */ (null));
  const [isReading, setReading] = useState(false);
  const read = async () => {
    setReading(true);
    const problem = await refusalOf(async () => setFound({ rendered: await api("POST", "render", { request: requestBehind(open, turn) }) }));
    if (problem) setFound({ problem });
    setReading(false);
  };
  const toggled = (/** @type {Event} */ event) => {
    if (/** @type {HTMLDetailsElement} */ (event.target).open && !found?.rendered && !isReading) read();
  };
  return html`<details class="rendered" onToggle=${toggled}>
    <summary>${t("Show the prompt as the model reads it")}</summary>
    ${isReading && html`<p class="hint" role="status">${t("Reading …")}</p>`}
    ${!isReading && found?.problem && html`<p class="problem" role="alert">${found.problem}</p>
      <button type="button" class="button button-small" onClick=${read}>${t("Try again")}</button>`}
    ${found?.rendered && html`<p class="hint">${plural(found.rendered.num_tokens, "one token", "{n} tokens")} ·${" "}
      ${plural(found.rendered.num_messages, "one message", "{n} messages")}
      <${CopyButton} text=${() => found.rendered?.prompt ?? ""} /></p><pre class="insight-json" tabindex="0">${found.rendered.prompt}</pre>`}
  </details>`;
}
