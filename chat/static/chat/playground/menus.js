// Menus of the bar: <details> that close with Esc, with a click elsewhere, and when another one opens.
export function setUpMenus() {
  const menus = [...document.querySelectorAll("details.menu")];
  const close = (except) => menus.filter((menu) => menu !== except).forEach((menu) => (menu.open = false));
  document.addEventListener("click", (event) => close(menus.find((menu) => menu.contains(event.target))));
  for (const menu of menus) {
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      event.stopPropagation();
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  }
}
