// Elements with a class and plain text; text is never HTML.
export function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** A quiet button; `label` is what it is called where its text is a sign. */
export function button(text, act, label) {
  const node = element("button", "button button-quiet button-small", text);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", act);
  return node;
}
