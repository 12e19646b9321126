// @ts-check
import { page } from "./page.js";

/**
 * Return the text in the page's language. `{name}` stands for a value of `values`.
 * @param {string} text in English
 * @param {Record<string, string | number>} [values]
 */
export function t(text, values = {}) {
  const found = page.strings?.[text] ?? text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/**
 * Return the text as it is. It marks a text for the catalogues (`manage.py messages`) that t() gets by another name:
 * one of a constant, say.
 * @param {string} text in English
 */
export const mark = (text) => text;

/**
 * Return one of two texts by a number, which `{n}` stands for.
 * @param {number} n
 * @param {string} one
 * @param {string} many
 */
export const plural = (n, one, many) => t(n === 1 ? one : many, { n: number(n) });

/** How figures and times are written: as where the reader lives, if they read the page's language there, such as en-GB. */
export const locale = navigator.languages.find((one) => one.split("-")[0] === page.language) ?? page.language;

/** @param {number} value @param {Intl.NumberFormatOptions} [options] */
export const number = (value, options) => value.toLocaleString(locale, options);

/** The length of a side of an image. @param {number} value in pixels */
export const pixels = (value) => number(value, { useGrouping: false });

/** @param {number} value seconds */
export const seconds = (value) => `${number(value, { minimumFractionDigits: 2, maximumFractionDigits: 2 })} s`;

/** @param {number} value bytes of a file */
export function fileSize(value) {
  if (value < 1000) return `${number(value)} B`;
  const [size, unit] = value < 1e6 ? [value / 1000, "kB"] : [value / 1e6, "MB"];
  return `${number(size, { maximumFractionDigits: 1 })} ${unit}`;
}

/** A day and time in the page's language. @param {Date} date @param {Intl.DateTimeFormatOptions} [options] */
export const moment = (date, options = { dateStyle: "medium", timeStyle: "short" }) => date.toLocaleString(locale, options);
