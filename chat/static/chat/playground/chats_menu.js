// The menu of earlier chats.
import { button, element } from "./elements.js";

export class ChatsMenu {
  /** `onOpen(chat)`, `onForget()`. */
  constructor(menu, { onOpen, onForget }) {
    this.menu = menu;
    this.list = menu.querySelector(".menu-list");
    this.onOpen = onOpen;
    menu.querySelector(".forget").addEventListener("click", () => {
      if (!confirm("Delete the earlier chats of this tab? This cannot be undone.")) return;
      menu.open = false;
      onForget();
      this.show([]);
    });
  }

  show(chats) {
    this.menu.hidden = chats.length === 0;
    const entries = chats.map((chat) => {
      const open = button(chat.title, () => {
        this.menu.open = false;
        this.onOpen(chat);
      });
      const item = element("li");
      item.append(open);
      return item;
    });
    this.list.replaceChildren(...entries);
  }
}
