import { defineConfig } from "vitest/config";

const OUT = process.env.PROFKIT_REPORT_OUT ?? "../profkit/render/html/static";

export default defineConfig({
  build: {
    target: ["chrome113", "firefox115", "safari16.4"],
    outDir: OUT,
    emptyOutDir: false,
    modulePreload: false,
    lib: { entry: "src/main.ts", name: "profkitPage", formats: ["iife"], fileName: () => "page.js", cssFileName: "page" },
  },
  test: { environment: "node", include: ["test/**/*.test.ts"] },
});
