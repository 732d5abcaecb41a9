// Charts as SVG, by ECharts without a browser.
import * as echarts from 'echarts';
import { write } from './units.mjs';

export const palette = ['#73bf69', '#f2cc0c', '#5794f2', '#ff9830', '#b877d9', '#f2495c', '#8ab8ff', '#37872d', '#e0b400', '#c4162a', '#ffa6b0', '#96d98d'];
// Grafana's own names of colours, as far as the dashboards use them.
export const named = { green: '#73bf69', yellow: '#f2cc0c', red: '#f2495c', orange: '#ff9830' };
const text = '#c7d0d9';
const grid = '#2c3235';
const font = { color: text, fontFamily: 'Liberation Sans, Arial, sans-serif', fontSize: 11 };

function svg(width, height, option) {
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width, height });
  chart.setOption({ animation: false, backgroundColor: 'transparent', textStyle: font, ...option });
  const out = chart.renderToSVGString();
  chart.dispose();
  return out;
}

// clock writes hours, minutes and seconds.
const clock = (ms) => new Date(ms).toTimeString().slice(0, 8);

function timeAxis(times, width) {
  return {
    type: 'time', min: times[0] * 1000, max: times.at(-1) * 1000, splitNumber: Math.max(2, Math.floor(width / 130)),
    axisLine: { lineStyle: { color: grid } }, axisTick: { show: false }, splitLine: { show: true, lineStyle: { color: grid } },
    // Those at the ends would stick out; the others reach into the margin.
    axisLabel: { ...font, formatter: clock, hideOverlap: true, showMinLabel: false, showMaxLabel: false },
  };
}

// flips are moments, drawn as upright lines.
function flips(moments) {
  return {
    silent: true, symbol: 'none', label: { show: false }, lineStyle: { color: named.orange, type: 'dashed', width: 1 },
    data: moments.map((t) => ({ xAxis: t * 1000 })),
  };
}

// lines draws series over time, on one another if they are stacked.
export function lines({ width, height, times, series, unit, stacked, log, opacity, lineWidth, moments }) {
  const nothing = series.every((s) => s.values.every((v) => !v));
  return svg(width, height, {
    color: palette,
    grid: { left: 8, right: 34, top: 10, bottom: 4, containLabel: true },
    xAxis: timeAxis(times, width),
    yAxis: {
      type: log ? 'log' : 'value', min: log ? undefined : 0, max: nothing ? 1 : undefined,
      splitNumber: nothing ? 2 : Math.max(2, Math.floor(height / 45)), axisLabel: { ...font, formatter: (v) => write(v, unit) },
      splitLine: { lineStyle: { color: grid } },
    },
    series: series.map((s, i) => ({
      type: 'line', name: s.name, showSymbol: false, connectNulls: false, stack: stacked ? 'all' : undefined,
      lineStyle: { width: lineWidth }, areaStyle: { opacity: opacity / 100 }, itemStyle: { color: s.color },
      data: s.values.map((v, k) => [times[k] * 1000, stacked ? (v ?? 0) : log && !(v > 0) ? null : v]),
      markLine: i === 0 && moments.length ? flips(moments) : undefined,
    })),
  });
}

// spark draws the area behind a number.
export function spark({ width, height, times, values, color }) {
  return svg(width, height, {
    grid: { left: 0, right: 0, top: 4, bottom: 0 },
    xAxis: { type: 'time', show: false, min: times[0] * 1000, max: times.at(-1) * 1000 },
    yAxis: { type: 'value', show: false, min: 0, max: values.every((v) => !v) ? 1 : undefined },
    series: [{
      type: 'line', showSymbol: false, lineStyle: { width: 1, color }, areaStyle: { opacity: 0.2, color },
      data: values.map((v, k) => [times[k] * 1000, v]),
    }],
  });
}

// states draws what each series was, when. A state has a value, a text and a color.
export function states({ width, height, times, series, mappings }) {
  const longest = Math.max(...series.map((s) => s.name.length));
  const bars = [];
  series.forEach((s, row) => {
    let start = 0;
    for (let k = 1; k <= s.values.length; k++) {
      if (k < s.values.length && s.values[k] === s.values[start]) continue;
      if (s.values[start] !== null) bars.push([row, times[start] * 1000, times[Math.min(k, times.length - 1)] * 1000, s.values[start]]);
      start = k;
    }
  });
  return svg(width, height, {
    // Fonts differ: room for a wide one.
    grid: { left: 20 + longest * 7, right: 34, top: 4, bottom: 22 },
    xAxis: { ...timeAxis(times, width), splitLine: { show: false } },
    yAxis: {
      type: 'category', inverse: true, data: series.map((s) => s.name), axisLabel: { ...font, interval: 0 },
      axisLine: { show: false }, axisTick: { show: false },
    },
    series: [{
      type: 'custom', encode: { x: [1, 2], y: 0 }, data: bars,
      renderItem: (_, api) => {
        const [x, y] = api.coord([api.value(1), api.value(0)]);
        const [end] = api.coord([api.value(2), api.value(0)]);
        const { text: label, color } = mappings.get(String(api.value(3)));
        const tall = api.size([0, 1])[1] * 0.72;
        return {
          type: 'rect', shape: { x, y: y - tall / 2, width: Math.max(1, end - x), height: tall },
          style: { fill: color, stroke: '#181b1f', lineWidth: 1 },
          textContent: end - x > 45 ? { style: { text: label, fill: '#111217', fontSize: 11, fontFamily: font.fontFamily } } : undefined,
          textConfig: { position: 'inside' },
        };
      },
    }],
  });
}

// heat draws counts by time and bucket: rows are buckets, the lowest first.
export function heat({ width, height, times, buckets, names }) {
  const cells = [];
  buckets.forEach((values, row) => values.forEach((v, k) => v > 0 && cells.push([k, row, v])));
  return svg(width, height, {
    grid: { left: 8, right: 12, top: 10, bottom: 34, containLabel: true },
    xAxis: {
      type: 'category', data: times.map((t) => clock(t * 1000)), axisTick: { show: false }, axisLine: { lineStyle: { color: grid } },
      axisLabel: { ...font, interval: Math.max(1, Math.floor(times.length / Math.floor(width / 110))) },
    },
    yAxis: { type: 'category', data: names, axisTick: { show: false }, axisLine: { show: false }, axisLabel: { ...font, interval: 0 } },
    visualMap: {
      min: 0, max: Math.max(...cells.map((c) => c[2])), orient: 'horizontal', left: 'center', bottom: 0, itemHeight: 120, itemWidth: 10,
      calculable: false, text: [`${write(Math.max(...cells.map((c) => c[2])), 'short')} messages`, '0'], textStyle: font,
      inRange: { color: ['#1f3b57', '#5794f2', '#f2cc0c', '#ff9830'] },
    },
    series: [{ type: 'heatmap', data: cells, itemStyle: { borderWidth: 0 } }],
  });
}
