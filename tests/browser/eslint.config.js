import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: { ...globals.browser, ...globals.node } },
    rules: {
      "no-control-regex": "off", // text is shown with escapes in place of control characters
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
    },
  },
];
