// @ts-check
export const Panes = () => null;
