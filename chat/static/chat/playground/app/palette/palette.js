// @ts-check
export function showPalette() {}
