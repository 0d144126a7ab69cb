/** Wires the page: what needs no data at once, the timeline as soon as the data is unpacked. */

import "./page.css";
import "./timeline.css";
import { bytesOf, columnsOf, inflate } from "./data/decode";
import { parseMeta, type Meta } from "./data/meta";
import { PageData } from "./data/row";
import { Router } from "./links/router";
import { wireCopies } from "./page/copy";
import { h } from "./page/dom";
import { wireTheme } from "./page/theme";
import { mountTimeline, type Timeline } from "./panel/mount";
import { Explorer } from "./tables/explorer";
import { drawRoofline } from "./tables/roofline";
import { wireTables } from "./tables/sortable";

function textOf(id: string): string {
  return document.getElementById(id)?.textContent ?? "";
}

/** Says in plain words why there is no timeline. */
function explain(mount: HTMLElement | null, words: string): void {
  mount?.append(h("p", { class: "tl-failed", role: "status" }, words));
}

async function load(meta: Meta): Promise<PageData> {
  const bytes = await inflate(bytesOf(textOf("profkit-data")));
  const tracks = meta.ranks.flatMap((rank) => rank.tracks);
  const curves = meta.ranks.flatMap((rank) => rank.curves);
  return new PageData(meta, ...columnsOf(bytes, tracks, curves));
}

function mountTables(data: PageData): void {
  const explorer = document.getElementById("explorer");
  if (explorer && data.ranks.some((rank) => rank.meta.work.rows.length > 0)) new Explorer(explorer, data);
  const roof = document.getElementById("roofline");
  if (roof && !drawRoofline(roof, data) && !roof.querySelector(".static")) roof.hidden = true;
}

async function start(): Promise<void> {
  document.documentElement.classList.add("js");
  let timeline: Timeline | null = null;
  wireTheme(document.getElementById("theme"), () => timeline?.retheme());
  wireCopies(document);
  wireTables(document);
  const text = textOf("profkit-meta");
  const mount = document.getElementById("timeline");
  if (text === "") return;
  const meta = parseMeta(text);
  if (!meta) return explain(mount, "The data of this page is of another version than its script: no timeline.");
  if (typeof DecompressionStream === "undefined") {
    return explain(mount, "This browser cannot unpack the page's data: no timeline. One of 2023 or later can.");
  }
  const data = await load(meta);
  mountTables(data);
  if (!mount || !data.ranks.some((rank) => rank.rows.length > 0)) return;
  let router: Router | null = null;
  timeline = mountTimeline(mount, data, () => router?.letGo());
  router = new Router(timeline, mount);
}

start()
  .then(() => (document.documentElement.dataset.state = "ready"))
  .catch((error: unknown) => {
    document.documentElement.dataset.state = "failed";
    console.error(error);
    const why = error instanceof Error ? error.message : "unknown reason";
    explain(document.getElementById("timeline"), `The timeline could not be drawn: ${why}`);
  });
