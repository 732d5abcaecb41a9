// Numbers as Grafana writes them, for the units that the dashboards use.

const digits = (v, n = 3) => {
  if (v === 0) return '0';
  const rounded = Number(v.toPrecision(n));
  return String(Math.abs(rounded) >= 1000 ? Math.round(rounded) : rounded);
};

function scaled(v, base, names) {
  let i = 0;
  while (Math.abs(v) >= base && i < names.length - 1) {
    v /= base;
    i++;
  }
  return digits(v) + names[i];
}

function seconds(v) {
  const size = Math.abs(v);
  if (size === 0) return '0 s';
  if (size < 1e-6) return `${digits(v * 1e9)} ns`;
  if (size < 1e-3) return `${digits(v * 1e6)} µs`;
  if (size < 1) return `${digits(v * 1e3)} ms`;
  if (size < 120) return `${digits(v)} s`;
  if (size < 7200) return `${digits(v / 60)} min`;
  return `${digits(v / 3600)} h`;
}

const writers = {
  s: seconds,
  percentunit: (v) => `${digits(v * 100)} %`,
  ops: (v) => scaled(v, 1000, [' ops/s', 'K ops/s', 'M ops/s']),
  reqps: (v) => scaled(v, 1000, [' req/s', 'K req/s', 'M req/s']),
  Bps: (v) => scaled(v, 1000, [' B/s', ' kB/s', ' MB/s', ' GB/s']),
  bytes: (v) => scaled(v, 1024, [' B', ' KiB', ' MiB', ' GiB']),
  short: (v) => scaled(v, 1000, ['', 'K', 'M', 'B']),
  none: (v) => digits(v, 6),
};

// write puts a number and its unit into words. A unit that is not known here is
// an error: the picture would be wrong.
export function write(v, unit) {
  const writer = writers[unit];
  if (!writer) throw new Error(`unit ${unit} is not known`);
  return writer(v);
}
