// All conversations of a store.

import { el } from "./dom.js";

export class Overview {
  constructor(root) {
    this.root = root;
  }

  async start() {
    this.root.replaceChildren(el("p", {}, "All conversations"));
  }
}
