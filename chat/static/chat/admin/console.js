"use strict";

// The time zone of the browser, for pages that show or take times.
document.cookie = `lightcone_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; path=/; max-age=31536000; SameSite=Lax`;

// Copy buttons: <button data-copy="#id" hidden>. They stay hidden where the page cannot reach the clipboard.
document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const source = document.querySelector(button.dataset.copy);
    const status = document.querySelector(".lc-copied");
    if (!source || !navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        if (status) status.textContent = "Copied.";
      } catch {
        getSelection().selectAllChildren(source);
        if (status) status.textContent = "Press Ctrl+C to copy the marked text.";
      }
    });
  }
});

// Fields that search for values have no name of their own: they take that of the field that they fill.
const nameSearches = () => {
  for (const field of document.querySelectorAll(".select2-search__field:not([aria-label])")) {
    const label = field.closest(".select2-container")?.previousElementSibling?.labels?.[0];
    if (label) field.setAttribute("aria-label", label.textContent.trim());
  }
};
document.addEventListener("DOMContentLoaded", () => new MutationObserver(nameSearches).observe(document.body, { childList: true, subtree: true }));

// Charts: django-unfold reads the colours once, and as they are written. Work them out, and anew when the theme changes.
const colourOf = (name) => {
  const probe = document.body.appendChild(document.createElement("span"));
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
};
const paintCharts = () => {
  Chart.defaults.color = colourOf("--lc-soft");
  Chart.defaults.locale = document.documentElement.lang;
  for (const chart of Object.values(Chart.instances)) {
    JSON.parse(chart.canvas.dataset.value).datasets.forEach((part, index) => {
      const colour = colourOf(part.backgroundColor.slice(4, -1));
      chart.data.datasets[index].backgroundColor = colour;
      if (part.borderColor) chart.data.datasets[index].borderColor = colour;
    });
    for (const axis of Object.values(chart.options.scales)) {
      axis.ticks.color = Chart.defaults.color;
      axis.grid.color = colourOf("--lc-line");
    }
    chart.update();
  }
};
// Unfold draws them at the load event, with a listener that is there before DOMContentLoaded.
document.addEventListener("DOMContentLoaded", () => addEventListener("load", paintCharts));
new MutationObserver(paintCharts).observe(document.documentElement, { attributeFilter: ["class", "data-theme"] });

// Live lists: <span data-live="#id"> has the element of this id read again all the time while the page is looked at.
document.addEventListener("DOMContentLoaded", () => {
  const mark = document.querySelector("[data-live]");
  if (!mark) return;
  const busy = () => document.hidden || document.activeElement?.closest(mark.dataset.live);
  const refresh = async () => {
    try {
      const page = busy() ? null : await fetch(location.href, { headers: { Accept: "text/html" } });
      if (page?.ok && !page.redirected) {
        const read = new DOMParser().parseFromString(await page.text(), "text/html").querySelector(mark.dataset.live);
        const shown = document.querySelector(mark.dataset.live);
        if (read && shown && !busy() && read.innerHTML !== shown.innerHTML) shown.replaceWith(read);
      }
    } catch {
      // The server is away: the list stays as it is.
    }
    setTimeout(refresh, 700);
  };
  setTimeout(refresh, 700);
});
