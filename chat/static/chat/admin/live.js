// Live panels: a socket that brings the panel once a second, and polling where a network lets no socket through. The HTML is made by
// the server; `morph` changes what differs, so that focus, open details and selected text stay.
import uPlot from "../vendor/uplot.js";

const PERIOD_MS = 1000;
const SILENCE_MS = 5000;
const RETRY_SOCKET_MS = 30_000;
const MAX_POINTS = 300;
const ENDED = new Set([4401, 4403, 4404]);

/** Makes the children of one element those of another; elements with the same `data-key` are the same. */
export function morph(from, to) {
  const kept = new Map();
  for (const child of from.children) if (child.dataset.key) kept.set(child.dataset.key, child);
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const known = wanted.dataset?.key ? kept.get(wanted.dataset.key) : undefined;
    if (known && known !== at) from.insertBefore(known, at), (at = known);
    if (at && isSame(at, wanted)) {
      const next = at.nextSibling;
      if (wanted.nodeType === Node.ELEMENT_NODE) {
        sameAttributes(at, wanted);
        morph(at, wanted);
      } else if (at.data !== wanted.data) at.data = wanted.data;
      at = next;
    } else from.insertBefore(wanted, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function isSame(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;
}

function sameAttributes(from, to) {
  for (const { name, value } of to.attributes) if (name !== "open" && from.getAttribute(name) !== value) from.setAttribute(name, value);
  for (const { name } of [...from.attributes]) if (name !== "open" && !to.hasAttribute(name)) from.removeAttribute(name);
}

const CHARTS = {
  tokens: (models) => [sum(models, "input_per_s"), sum(models, "output_per_s")],
  requests: (models, snapshot) => [sum(models, "num_running"), Math.max(0, total(snapshot.live) - sum(models, "num_running"))],
  cache: (models) => [100 * Math.max(0, ...models.map((model) => model.cache_used)), Math.max(0, ...models.map((model) => model.step_ms))],
};
const sum = (rows, field) => rows.reduce((before, row) => before + row[field], 0);
const total = (numbers) => Object.values(numbers).reduce((before, number) => before + number, 0);
/** The distances of marks on an axis of time: less than a second would give two marks one name. */
const WHOLE_SECONDS = [1, 2, 5, 10, 20, 30, 60, 120, 300];
const figure = new Intl.NumberFormat(document.documentElement.lang || "en", { maximumFractionDigits: 1 });
/** Marks between 0 and 1 are a quarter apart. */
const markFigure = new Intl.NumberFormat(document.documentElement.lang || "en", { maximumFractionDigits: 2, notation: "compact" });
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Lines of the last five minutes, drawn once a second, or each five seconds for those who want less motion. */
class Lines {
  constructor(root) {
    this.points = { at: [], tokens: [[], []], requests: [[], []], cache: [[], []] };
    this.plots = new Map();
    this.drawn = 0;
    root.hidden = false;
    for (const place of root.querySelectorAll("[data-chart]")) this.plots.set(place, null);
    new ResizeObserver(() => this.draw(true)).observe(root);
    new MutationObserver(() => this.rebuild()).observe(document.documentElement, { attributeFilter: ["class", "data-theme"] });
  }

  add(snapshot) {
    const models = snapshot.hosts.flatMap((host) => host.models);
    this.points.at.push(snapshot.at);
    if (this.points.at.length > MAX_POINTS) this.points.at.shift();
    for (const [kind, values] of Object.entries(CHARTS)) {
      values(models, snapshot).forEach((value, index) => {
        const line = this.points[kind][index];
        line.push(value);
        if (line.length > MAX_POINTS) line.shift();
        const text = document.querySelector(`[data-now="${kind}-${index + 1}"]`);
        if (text) text.textContent = figure.format(value);
      });
    }
    this.draw(false);
  }

  rebuild() {
    for (const [place, plot] of this.plots) {
      plot?.destroy();
      this.plots.set(place, null);
    }
    this.draw(true);
  }

  draw(isForced) {
    const now = performance.now();
    if (!isForced && calm.matches && now - this.drawn < 5000) return;
    this.drawn = now;
    for (const [place, plot] of this.plots) {
      const data = [this.points.at, ...this.points[place.dataset.chart]];
      const width = place.clientWidth;
      if (!width) continue;
      if (plot === null) this.plots.set(place, new uPlot(options(width), data, place));
      else {
        if (plot.width !== width) plot.setSize({ width, height: 160 });
        plot.setData(data);
      }
    }
  }
}

function colour(name) {
  const probe = document.body.appendChild(document.createElement("span"));
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function options(width) {
  const axis = { stroke: colour("--lc-soft"), grid: { stroke: colour("--lc-line"), width: 1 }, ticks: { show: false } };
  const line = (name, dash) => ({ stroke: colour(name), width: 2, dash, points: { show: false } });
  return {
    width,
    height: 160,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
    axes: [{ ...axis, size: 28, incrs: WHOLE_SECONDS, values: (plot, values) => values.map((value) => `${figure.format(Math.round(value - plot.data[0].at(-1)) || 0)} s`) }, { ...axis, size: 56, values: (_, values) => values.map((value) => markFigure.format(value)) }],
    series: [{}, line("--chart-1"), line("--chart-2", [6, 3])],
  };
}

/** The page's one connection. */
class Live {
  constructor(bar) {
    this.bar = bar;
    this.panel = document.querySelector("#live-panel");
    this.status = bar.querySelector("[data-live-status]");
    const charts = document.querySelector("[data-live-charts]");
    this.lines = charts ? new Lines(charts) : null;
    this.isPaused = false;
    this.query = new URLSearchParams({ view: bar.dataset.liveView, lang: bar.dataset.liveLang || document.documentElement.lang });
    if (bar.dataset.liveModel) this.query.set("model", bar.dataset.liveModel);
    const button = bar.querySelector("[data-live-pause]");
    const names = [button.textContent, bar.dataset.saidResume];
    button.hidden = false;
    button.addEventListener("click", () => {
      this.isPaused = !this.isPaused;
      button.textContent = names[Number(this.isPaused)];
      this.say(this.isPaused ? "paused" : this.state);
    });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.connect()));
    addEventListener("pagehide", () => this.rest());
    addEventListener("pageshow", (event) => event.persisted && this.connect());
    if (!document.hidden) this.connect();
  }

  say(state) {
    if (state !== "paused") this.state = state;
    if (this.isPaused && state !== "ended") state = "paused";
    if (this.bar.dataset.state === state) return;
    this.bar.dataset.state = state;
    this.status.textContent = this.bar.dataset[`said${state[0].toUpperCase()}${state.slice(1)}`];
  }

  take(message, state) {
    this.say(message.snapshot ? state : "away");
    if (this.isPaused) return;
    if (message.snapshot && this.lines) this.lines.add(message.snapshot);
    const read = document.createElement("div");
    read.innerHTML = message.html;
    morph(this.panel, read);
  }

  connect() {
    if (this.socket || this.timer || this.hasEnded) return;
    const place = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/admin/live?${this.query}`;
    const socket = (this.socket = new WebSocket(place));
    let patience;
    let hasSpoken = false;
    // A proxy may hold a socket and let nothing through, and a network may go without a word.
    const wait = () => {
      clearTimeout(patience);
      patience = setTimeout(() => {
        socket.close();
        leave(0);
      }, SILENCE_MS);
    };
    const leave = (code) => {
      clearTimeout(patience);
      if (this.socket !== socket) return;
      this.socket = null;
      if (ENDED.has(code)) return this.end();
      this.say("away");
      if (hasSpoken && code === 0) this.connect();
      else this.poll(performance.now() + RETRY_SOCKET_MS);
    };
    wait();
    socket.onmessage = ({ data }) => {
      if (this.socket !== socket) return;
      hasSpoken = true;
      wait();
      this.take(JSON.parse(data), "live");
    };
    socket.onclose = ({ code }) => leave(code);
  }

  async poll(until) {
    if (this.hasEnded || document.hidden) return;
    this.timer = setTimeout(() => {
      if (performance.now() > until) {
        this.timer = null;
        this.connect();
      } else this.poll(until);
    }, PERIOD_MS);
    try {
      const answer = await fetch(`${this.bar.dataset.poll}?${this.query}`, { headers: { Accept: "application/json" } });
      if (answer.redirected || [401, 403, 404].includes(answer.status)) this.end();
      else if (this.timer) this.take(await answer.json(), "polling");
    } catch {
      this.say("away");
    }
  }

  rest() {
    clearTimeout(this.timer);
    this.timer = null;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  end() {
    this.hasEnded = true;
    this.rest();
    this.say("ended");
  }
}

const bar = document.querySelector("[data-live-view]");
if (bar) new Live(bar);
