// Light or dark: as the system has it, or as the reader chose.

import { el, keep, kept } from "./dom.js";

const NAME = "foldlog-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function show() {
  const chosen = kept("localStorage", NAME);
  document.documentElement.dataset.theme = chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
}

show(); // before anything is drawn

export const themeButton = () => el("button", { class: "round", title: "Light or dark", "aria-label": "Light or dark", onclick: toggle }, "◐");

function toggle() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  keep("localStorage", NAME, theme);
}

export function watchTheme(changed) {
  dark.addEventListener("change", show);
  new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}
