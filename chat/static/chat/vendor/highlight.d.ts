export { default } from "highlight.js";
export type * from "highlight.js";
