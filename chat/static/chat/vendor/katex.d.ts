export { default, ParseError } from "katex";
export type * from "katex";
