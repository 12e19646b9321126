// @ts-check
// Whether an answer has the form that it was asked for.
import { html, useLayoutEffect, useRef, useState } from "../../../vendor/preact.js";
import { t } from "../core/i18n.js";
import { isObject, parse } from "../core/json.js";
import { Icon } from "../view/icons.js";
import { constraintOf } from "./constraint.js";
import { remarksOn } from "./remarks.js";
import { mismatch, useServerCheck } from "./server_check.js";

/** @import { Turn } from "../core/tree.js" */
/** @import { Constraint } from "./constraint.js" */

/** @param {{turn: Turn, shown: number}} props */
export function Verdict({ turn, shown }) {
  const choice = turn.choices[shown];
  const constraint = constraintOf(turn.facts.parameters?.fields ?? {});
  const asks = constraint.mode === "regex" || constraint.mode === "grammar";
  const isShown = !turn.isRunning && constraint.mode !== "off" && constraint.mode !== "other" && Boolean(choice?.content) && !choice.calls.length;
  const [isSeen, place] = useSeen(isShown && asks);
  const checked = useServerCheck(isShown && asks && isSeen ? constraint.mode : "", constraint.value, choice?.content ?? "");
  if (!isShown) return null;
  if (asks && typeof checked?.matches !== "boolean") return html`<span ref=${place}></span>`;
  const problem = !asks ? problemOf(choice.content, constraint) : !checked || checked.matches ? "" : mismatch(checked, choice.content);
  const good = constraint.mode === "schema" ? t("Matches the schema") : constraint.mode === "json" ? t("JSON object") : constraint.mode === "choice" ? t("One of the choices") : t("Matches what was asked for");
  const cut = problem && choice.finish_reason === "length" ? t(" The answer was cut at the token limit.") : "";
  return html`<p class=${`verdict ${problem ? "is-wrong" : ""}`}><${Icon} name=${problem ? "close" : "check"} size=${14} /><span>${problem ? problem + cut : good}</span></p>`;
}

/** Whether the element of the reference has been in sight, because a long chat may have hundreds of answers to be checked. @param {boolean} isWanted */
function useSeen(isWanted) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [isSeen, setSeen] = useState(false);
  useLayoutEffect(() => {
    if (!place.current || isSeen) return undefined;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setSeen(true));
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [isWanted, isSeen]);
  return /** @type {const} */ ([isSeen, place]);
}

/** What is wrong with a text, "" for nothing. @param {string} text @param {Constraint} constraint */
function problemOf(text, { mode, value: rule }) {
  if (mode === "choice") return Array.isArray(rule) && rule.includes(text) ? "" : t("None of the choices.");
  const { isWhole, value, problem } = parse(text);
  if (!isWhole) return t("Not JSON: {problem}", { problem });
  if (mode === "json") return isObject(value) ? "" : t("Not a JSON object.");
  const { remarks, unknown } = remarksOn(value, rule);
  if (remarks.length) return t("{path} {message}", { path: remarks[0].path || t("The answer"), message: remarks[0].message });
  return unknown.length ? t("Not fully checked: {keywords}", { keywords: unknown.join(", ") }) : "";
}
