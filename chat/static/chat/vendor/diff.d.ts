export { createTwoFilesPatch, diffArrays, diffChars, diffJson, diffLines, diffWords, diffWordsWithSpace } from "diff";
export type { ChangeObject } from "diff";
