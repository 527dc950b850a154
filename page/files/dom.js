// Small helpers. Everything that comes from outside is put in as text, never as markup.
export const $ = (id) => document.getElementById(id);

export function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function list(element, texts) {
  if (JSON.stringify([...element.children].map((c) => c.textContent)) !== JSON.stringify(texts)) {
    element.replaceChildren(...texts.map((text) => make("li", text)));
  }
}

const absent = (v) => v === undefined || v === null;
const figures = (v) => (v >= 100 ? v.toFixed(0) : Number(v.toPrecision(3)).toString());
export const ms = (v) => (absent(v) ? "–" : v >= 1e5 ? "> 100 s" : figures(v) + " ms");
export const rate = (v) => (absent(v) ? "–" : figures(v) + "/s");
export const share = (v) => (absent(v) ? "–" : (100 * v).toFixed(1) + "%");
export const percent = (v) => (100 * v).toFixed(0) + "%";

export function time(at) {
  const day = new Date(at), today = new Date();
  const clock = day.toLocaleTimeString([], { hourCycle: "h23" });
  return day.toDateString() === today.toDateString() ? clock : day.toLocaleDateString("sv") + " " + clock;
}
