// What the dashboards ask, asked of a Prometheus, and what Jaeger has.

async function getJSON(url) {
  const res = await fetch(url);
  const body = await res.text();
  if (!res.ok) throw new Error(`${url}: ${res.status} ${body.slice(0, 300)}`);
  return JSON.parse(body);
}

// A Source asks a Prometheus about a stretch of time, in seconds since 1970.
export class Source {
  constructor(url, from, to, scrape) {
    this.url = url;
    this.to = to;
    this.step = Math.max(scrape, Math.ceil((to - from) / 300));
    this.from = from - (from % this.step);
    // As Grafana: a rate needs four scrapes, and to leave none out between steps.
    this.window = `${Math.max(4 * scrape, this.step + scrape)}s`;
    this.times = [];
    for (let t = this.from; t <= this.to; t += this.step) this.times.push(t);
  }

  // fill puts in what Grafana does: all values of all variables, and a window.
  fill(expr, variables) {
    for (const v of variables) {
      if (v.type === 'query') expr = expr.replaceAll(`$${v.name}`, v.allValue);
    }
    expr = expr.replaceAll('$__rate_interval', this.window);
    if (expr.includes('$')) throw new Error(`not filled in: ${expr}`);
    return expr;
  }

  // range returns series with a value, or null, for each of the times.
  async range(expr) {
    const args = new URLSearchParams({ query: expr, start: this.from, end: this.to, step: this.step });
    const { data } = await getJSON(`${this.url}/api/v1/query_range?${args}`);
    return data.result.map(({ metric, values }) => {
      const at = new Map(values.map(([t, v]) => [t, Number(v)]));
      return { labels: metric, values: this.times.map((t) => (Number.isFinite(at.get(t)) ? at.get(t) : null)) };
    });
  }

  // instant returns rows for the end.
  async instant(expr) {
    const args = new URLSearchParams({ query: expr, time: this.to });
    const { data } = await getJSON(`${this.url}/api/v1/query?${args}`);
    return data.result.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }));
  }
}

// traces returns those of the demo that have a span with these tags.
export async function traces(url, tags) {
  const args = new URLSearchParams({ service: 'headgate-demo', tags: JSON.stringify(tags), limit: '200', lookback: '1h' });
  return (await getJSON(`${url}/api/traces?${args}`)).data;
}
