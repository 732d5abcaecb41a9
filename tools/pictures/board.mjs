// A dashboard as a page: panels at their places, with what they ask for.
import { heat, lines, named, palette, spark, states } from './charts.mjs';
import { write } from './units.mjs';

const unitHeight = 38;
const gap = 8;
const pad = 12;
const head = 56;

export const escape = (s) => String(s).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// legendOf fills labels into a legend's template.
function legendOf(template, labels) {
  return template.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '').trim();
}

const empty = (series) => !series.some((s) => s.values.some((v) => v !== null));

// A Board draws one dashboard. What has no data is noted in missing.
export class Board {
  constructor(json, source) {
    this.json = json;
    this.source = source;
    this.missing = [];
  }

  fill(expr) {
    return this.source.fill(expr, this.json.templating.list);
  }

  // ask fetches what all panels need. It is drawn at several widths.
  async ask() {
    this.moments = [];
    for (const a of this.json.annotations.list) {
      for (const s of await this.source.range(this.fill(a.expr))) {
        // Of what changed within a while: more of it is one more moment.
        s.values.forEach((v, k) => k > 0 && v > (s.values[k - 1] ?? 0) && this.moments.push(this.source.times[k]));
      }
    }
    this.answers = new Map();
    for (const p of this.json.panels) {
      if (p.type === 'row') continue;
      const answers = [];
      for (const target of p.targets) {
        const expr = this.fill(target.expr);
        const got = target.instant ? await this.source.instant(expr) : await this.source.range(expr);
        const none = target.instant ? !got.some((r) => Number.isFinite(r.value)) : empty(got);
        if (none) this.missing.push(`${this.json.title}, ${p.title}: ${expr}`);
        answers.push(got.map((s) => ({ ...s, target })));
      }
      this.answers.set(p.id, answers);
    }
  }

  // series are those of all queries of a panel, named.
  series(p) {
    return this.answers.get(p.id).flat().map((s, i) => ({
      ...s, name: legendOf(s.target.legendFormat, s.labels) || 'value', color: palette[i % palette.length],
    }));
  }

  // page returns HTML and its height.
  page(width) {
    const column = (width - 2 * pad + gap) / 24;
    let bottom = 0;
    const panels = this.json.panels.map((p) => {
      const { x, y, w, h } = p.gridPos;
      const box = {
        left: Math.round(pad + x * column), top: head + y * unitHeight,
        width: Math.round(w * column - gap), height: h * unitHeight - gap,
      };
      bottom = Math.max(bottom, box.top + box.height);
      const place = `left:${box.left}px;top:${box.top}px;width:${box.width}px;height:${box.height}px`;
      if (p.type === 'row') return `<h2 style="${place}">${escape(p.title)}</h2>`;
      return `<section style="${place}"><h3>${escape(p.title)}</h3>${this.draw(p, box.width - 2, box.height - 30)}</section>`;
    });
    const { from, to, window } = this.source;
    const clock = (t) => new Date(t * 1000).toTimeString().slice(0, 8);
    const about = `${clock(from)} to ${clock(to)}, rates over ${window}. Dashed lines: a mode changed. A preview, not Grafana.`;
    return {
      height: bottom + pad,
      html: `<h1>${escape(this.json.title)}</h1><p class="about">${escape(about)}</p>${panels.join('\n')}`,
    };
  }

  draw(p, width, height) {
    switch (p.type) {
      case 'timeseries': return this.timeseries(p, width, height);
      case 'stat': return this.stat(p, width, height);
      case 'table': return this.table(p);
      case 'state-timeline': return this.timeline(p, width, height);
      case 'heatmap': return this.heatmap(p, width, height);
    }
    throw new Error(`panels of type ${p.type} are not drawn`);
  }

  timeseries(p, width, height) {
    const series = this.series(p);
    const { unit, custom } = p.fieldConfig.defaults;
    const columns = Math.max(1, Math.min(series.length, Math.floor(width / 330)));
    const per = Math.ceil(series.length / columns);
    const legend = this.legend(series, unit, p.options.legend.calcs, columns, per);
    const chart = lines({
      width, height: height - 18 * per - 24, times: this.source.times, series, unit, moments: this.moments,
      stacked: custom.stacking?.mode === 'normal', log: custom.scaleDistribution?.type === 'log', opacity: custom.fillOpacity, lineWidth: custom.lineWidth,
    });
    return chart + legend;
  }

  legend(series, unit, calcs, columns, per) {
    const calc = {
      mean: (values) => values.reduce((a, b) => a + b, 0) / values.length,
      max: (values) => Math.max(...values),
    };
    const tables = [];
    for (let c = 0; c < columns; c++) {
      const rows = series.slice(c * per, (c + 1) * per).map((s) => {
        const values = s.values.filter((v) => v !== null);
        const numbers = calcs.map((name) => `<td>${values.length ? write(calc[name](values), unit) : ''}</td>`);
        return `<tr><th><i style="background:${s.color}"></i>${escape(s.name)}</th>${numbers.join('')}</tr>`;
      });
      const titles = calcs.map((name) => `<td>${name}</td>`).join('');
      if (rows.length) tables.push(`<table><tr class="calcs"><th></th>${titles}</tr>${rows.join('')}</table>`);
    }
    return `<div class="legend">${tables.join('')}</div>`;
  }

  stat(p, width, height) {
    const series = this.series(p);
    const { unit, thresholds } = p.fieldConfig.defaults;
    const last = series.map((s) => s.values.filter((v) => v !== null).at(-1));
    const value = last.find((v) => v !== undefined);
    if (value === undefined) return '<p class="none">No data</p>';
    const over = thresholds.steps.filter((s) => s.value == null || value >= s.value).at(-1);
    const color = named[over.color];
    const chart = spark({ width, height: Math.floor(height * 0.45), times: this.source.times, values: series[0].values, color });
    return `<div class="stat" style="color:${color};height:${Math.ceil(height * 0.55)}px">${write(value, unit)}</div>${chart}`;
  }

  table(p) {
    const { renameByName: rename, indexByName: first } = p.transformations.find((t) => t.id === 'organize').options;
    const units = new Map(p.fieldConfig.overrides.map((o) => [o.matcher.options, o.properties.find((q) => q.id === 'unit')?.value]));
    const answers = this.answers.get(p.id);
    const columns = p.targets.map((t) => rename[answers.length > 1 ? `Value #${t.refId}` : 'Value']);
    const labels = [...new Set(answers.flat().flatMap((r) => Object.keys(r.labels)))].filter((l) => l !== '__name__')
      .sort((a, b) => (first[a] ?? 99) - (first[b] ?? 99) || a.localeCompare(b));
    const merged = new Map();
    answers.forEach((rows, i) => {
      for (const r of rows) {
        const key = JSON.stringify(labels.map((l) => r.labels[l]));
        if (!merged.has(key)) merged.set(key, { labels: r.labels, values: [] });
        merged.get(key).values[i] = r.value;
      }
    });
    const body = [...merged.values()].map((row) => {
      const names = labels.map((l) => `<th>${escape(row.labels[l] ?? '')}</th>`);
      const values = columns.map((c, i) => `<td>${Number.isFinite(row.values[i]) ? write(row.values[i], units.get(c)) : ''}</td>`);
      return `<tr>${names.join('')}${values.join('')}</tr>`;
    });
    const titles = labels.map((l) => `<th>${escape(l)}</th>`).join('') + columns.map((c) => `<td>${escape(c)}</td>`).join('');
    return `<table class="rows"><tr class="titles">${titles}</tr>${body.join('')}</table>`;
  }

  timeline(p, width, height) {
    const mappings = new Map();
    for (const m of p.fieldConfig.defaults.mappings) {
      for (const [value, { text, color }] of Object.entries(m.options)) mappings.set(value, { text, color: named[color] });
    }
    const chart = states({ width, height: height - 26, times: this.source.times, series: this.series(p), mappings });
    const keys = [...mappings.values()].map((m) => `<span><i style="background:${m.color}"></i>${escape(m.text)}</span>`);
    return `${chart}<div class="keys">${keys.join('')}</div>`;
  }

  heatmap(p, width, height) {
    const bound = (s) => (s.labels.le === '+Inf' ? Infinity : Number(s.labels.le));
    const series = this.series(p).filter((s) => !empty([s])).sort((a, b) => bound(a) - bound(b));
    // Buckets count all that is below their bound; and several steps are one
    // cell, or there would be more cells than pixels.
    const wide = Math.max(1, Math.ceil(this.source.times.length / 60));
    const times = this.source.times.filter((_, k) => k % wide === 0);
    const below = (i, k) => (i < 0 ? 0 : series[i].values[k * wide] ?? 0);
    const buckets = series.map((_, i) => times.map((_, k) => Math.max(0, below(i, k) - below(i - 1, k))));
    const top = buckets.findLastIndex((b) => b.some((v) => v > 0)) + 1;
    const { unit } = p.fieldConfig.defaults;
    const names = series.slice(0, top).map((s) => (s.labels.le === '+Inf' ? 'more' : `≤ ${write(Number(s.labels.le), unit)}`));
    return heat({ width, height, times, buckets: buckets.slice(0, top), names });
  }
}
