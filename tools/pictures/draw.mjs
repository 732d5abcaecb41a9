// Draws the dashboards from their own JSON with live data, and a trace. It ends
// with 1 if a panel has no data, or if text does not fit where it stands.
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { Board } from './board.mjs';
import { Source, traces } from './data.mjs';
import * as waterfall from './trace.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const run = promisify(execFile);

// Scripts in the page say what sticks out of what holds it.
const clipped = `
const out = [];
for (const e of document.querySelectorAll('section, h3, .legend, .legend table, .rows, .stat, .span b, .span u, h1, .about')) {
  if (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1 && !e.matches('h1, h3, .span *')) out.push(e.className + ' ' + e.textContent.slice(0, 80));
}
const edge = document.body.getBoundingClientRect();
for (const e of document.querySelectorAll('section *, .span *')) {
  const r = e.getBoundingClientRect(), box = (e.closest('section') ?? document.body).getBoundingClientRect();
  if (r.width && (r.right > box.right + 1 || r.left < box.left - 1 || r.bottom > box.bottom + 1)) out.push(e.tagName + ' ' + e.textContent.slice(0, 80));
}
document.body.dataset.clipped = JSON.stringify(out);
`;

async function chromium(dir, width, height, file, ...flags) {
  const { stdout } = await run('chromium', [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--hide-scrollbars', `--user-data-dir=${join(dir, 'profile')}`,
    `--window-size=${width},${height}`, ...flags, `file://${file}`,
  ], { maxBuffer: 1 << 28, timeout: 120_000 });
  return stdout;
}

// shoot makes a PNG of a page. It returns what does not fit.
async function shoot(dir, name, width, { html, height }, to) {
  const css = await readFile(join(here, 'style.css'), 'utf8');
  const file = join(dir, `${name}-${width}.html`);
  await writeFile(file, `<!doctype html><meta charset="utf-8"><style>${css} body { width: ${width}px; height: ${height}px; }</style>
<body>${html}<script>${clipped}</script></body>`);
  const dom = await chromium(dir, width, height, file, '--dump-dom');
  const found = /data-clipped="([^"]*)"/.exec(dom);
  if (!found) throw new Error(`${name}: the page did not say whether all fits`);
  await mkdir(to, { recursive: true });
  await chromium(dir, width, height, file, `--screenshot=${join(to, `${name}.png`)}`);
  return JSON.parse(found[1].replaceAll('&quot;', '"').replaceAll('&amp;', '&')).map((what) => `${name} at ${width}: does not fit: ${what}`);
}

// findTrace returns a message that as much as possible has happened to.
async function findTrace(url) {
  const actions = ['fail_open', 'block'].map((action) => traces(url, { 'headgate.interceptor.action': action }));
  return waterfall.choose((await Promise.all(actions)).flat());
}

const { values: flags } = parseArgs({
  options: {
    from: { type: 'string' }, out: { type: 'string', default: 'doc/pictures' }, wide: { type: 'string', default: '.cache/pictures' },
    prometheus: { type: 'string', default: process.env.PROMETHEUS_URL }, jaeger: { type: 'string', default: process.env.JAEGER_URL },
    scrape: { type: 'string', default: '2' },
  },
});

const now = Math.floor(Date.now() / 1000);
const source = new Source(flags.prometheus, Number(flags.from ?? now - 300), now, Number(flags.scrape));
const faults = [];
const pages = [];
for (const name of ['cost', 'decisions', 'control']) {
  const board = new Board(JSON.parse(await readFile(join(root, 'dashboards', 'classic', `${name}.json`), 'utf8')), source);
  await board.ask();
  faults.push(...board.missing.map((m) => `no data: ${m}`));
  pages.push([name, (width) => board.page(width)]);
}
const trace = await findTrace(flags.jaeger);
if (!trace) throw new Error('Jaeger has no trace of a message that was stopped');
for (const kind of ['enforced', 'audit', 'error']) {
  if (!waterfall.kinds(trace).has(kind)) faults.push(`the trace has no span of kind ${kind}`);
}
pages.push(['trace', (width) => waterfall.page(trace, width)]);

const dir = await mkdtemp(join(tmpdir(), 'pictures-'));
try {
  for (const [name, page] of pages) {
    faults.push(...await shoot(dir, name, 1280, page(1280), flags.out), ...await shoot(dir, name, 1920, page(1920), flags.wide));
  }
} finally {
  await rm(dir, { recursive: true, force: true });
}
console.log(`drawn: ${flags.out} (1280 wide) and ${flags.wide} (1920 wide)`);
for (const fault of faults) console.error(fault);
process.exitCode = faults.length ? 1 : 0;
