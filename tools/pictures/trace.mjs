// A trace as a waterfall.
import { escape } from './board.mjs';
import { write } from './units.mjs';

const colors = { enforced: '#5794f2', audit: '#f2cc0c', error: '#f2495c', plain: '#6e7681' };
const words = {
  enforced: 'enforced: it stopped or changed the message', audit: 'audit: it judged, off the path',
  error: 'error: it failed', plain: 'messages, phases, and interceptors that let pass',
};
const rowHeight = 34;
const head = 92;

const tag = (span, key) => span.tags.find((t) => t.key === key)?.value;

function kindOf(span) {
  if (tag(span, 'error') === true || tag(span, 'headgate.interceptor.verdict') === 'error') return 'error';
  if (tag(span, 'headgate.interceptor.mode') === 'audit') return 'audit';
  if (['block', 'modify'].includes(tag(span, 'headgate.interceptor.action'))) return 'enforced';
  return 'plain';
}

// choose takes the trace with the most kinds of spans, and of these the longest list.
export function choose(all) {
  const score = (t) => new Set(t.spans.map(kindOf)).size * 1000 + t.spans.length;
  return all.reduce((best, t) => (!best || score(t) > score(best) ? t : best), null);
}

// kinds returns which kinds of spans a trace has.
export const kinds = (trace) => new Set(trace.spans.map(kindOf));

// inOrder lists spans as a tree, with their depth.
function inOrder(spans) {
  const ids = new Set(spans.map((s) => s.spanID));
  const parent = (s) => s.references.find((r) => r.refType === 'CHILD_OF')?.spanID;
  const under = (id, depth) => spans
    .filter((s) => (id === null ? !ids.has(parent(s)) : parent(s) === id))
    .sort((a, b) => a.startTime - b.startTime)
    .flatMap((s) => [{ span: s, depth }, ...under(s.spanID, depth + 1)]);
  return under(null, 0);
}

// verdict says in words what came of an interceptor, a phase or a message.
function verdict(span) {
  const parts = ['mode', 'verdict', 'action'].map((k) => tag(span, `headgate.interceptor.${k}`)).filter(Boolean);
  return parts.join(', ') || tag(span, 'headgate.message.outcome') || '';
}

// page returns HTML and its height.
export function page(trace, width) {
  const rows = inOrder(trace.spans);
  const from = Math.min(...trace.spans.map((s) => s.startTime));
  const took = Math.max(...trace.spans.map((s) => s.startTime + s.duration)) - from;
  const names = Math.round(width * 0.31);
  const says = Math.round(width * 0.17);
  const bars = width - names - says - 36;
  const at = (us) => Math.round((us / took) * (bars - 90)); // the last 90 are for a bar's time
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((f) => `<span class="tick" style="left:${12 + names + at(f * took)}px;height:${rows.length * rowHeight + 18}px">${write((f * took) / 1e6, 's')}</span>`);
  const lines = rows.map(({ span, depth }, i) => {
    const y = head + 24 + i * rowHeight;
    const x = at(span.startTime - from);
    const w = Math.max(2, at(span.duration));
    return `<div class="span" style="top:${y}px;width:${width - 24}px;height:${rowHeight}px">
<b style="width:${names - 10 - depth * 18}px;left:${depth * 18}px">${escape(span.operationName)}</b>
<i style="left:${names + x}px;width:${w}px;background:${colors[kindOf(span)]}"></i>
<em style="left:${names + x + w + 6}px">${write(span.duration / 1e6, 's')}</em>
<u style="left:${names + bars + 12}px;width:${says}px">${escape(verdict(span))}</u></div>`;
  });
  const keys = Object.entries(words).map(([k, text]) => `<span><i style="background:${colors[k]}"></i>${text}</span>`);
  return {
    height: head + 24 + rows.length * rowHeight + 12,
    html: `<h1>One message: ${escape(rows[0].span.operationName)}</h1>
<p class="about">Trace ${escape(trace.traceID)}, as Jaeger has it. A preview, not Jaeger's own page.</p>
<div class="keys top">${keys.join('')}</div><div style="position:absolute;top:${head}px;left:0">${ticks.join('')}</div>${lines.join('\n')}`,
  };
}
