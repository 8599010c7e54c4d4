// Light or dark: as the system has it, or as the reader chose.

import { el } from "./dom.js";

const NAME = "foldlog-theme";

export function themeButton() {
  return el("button", { class: "round", title: "Light or dark", "aria-label": "Light or dark", onclick: toggle }, "◐");
}

function toggle() {
  const dark = isDark();
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem(NAME, document.documentElement.dataset.theme);
  } catch {
    // A browser that keeps nothing for this page: the choice holds until it is closed.
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function watchTheme(changed) {
  try {
    const kept = localStorage.getItem(NAME);
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // As above.
  }
  new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
