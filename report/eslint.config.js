import tseslint from "typescript-eslint";

const UNSAFE = ["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc", "createContextualFragment", "setHTMLUnsafe"];

/** Names in a trace are a stranger's text: nothing here may hand text to a parser of HTML or of scripts. */
export default tseslint.config(...tseslint.configs.recommended, {
  files: ["src/**/*.ts", "test/**/*.ts"],
  rules: {
    "no-eval": "error",
    "no-implied-eval": "error",
    "no-new-func": "error",
    "no-script-url": "error",
    "no-restricted-globals": ["error", "fetch", "XMLHttpRequest", "WebSocket", "EventSource", "DOMParser", "alert"],
    "no-restricted-properties": [
      "error",
      ...UNSAFE.map((property) => ({ property, message: "names are text: use textContent or the helper h()" })),
      { object: "document", property: "write" },
      { object: "document", property: "writeln" },
      { object: "navigator", property: "sendBeacon" },
    ],
    "no-restricted-syntax": [
      "error",
      {
        selector: "CallExpression[callee.property.name='setAttribute'][arguments.0.value=/^(style|on.*|srcdoc)$/]",
        message: "the page's policy forbids style and on* attributes: set el.style.x, add listeners",
      },
      {
        selector: `MemberExpression[computed=true][property.value=/^(${UNSAFE.join("|")})$/]`,
        message: "names are text: use textContent or the helper h()",
      },
    ],
    "max-lines": ["error", 400],
    "max-lines-per-function": ["error", 60],
    complexity: ["error", 15],
  },
});
