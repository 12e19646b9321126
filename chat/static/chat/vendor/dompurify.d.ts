export { default } from "dompurify";
export type { Config } from "dompurify";
