package admin

import (
	_ "embed"
	"maps"
	"net/http"
	"time"
)

//go:embed openapi.json
var openAPI []byte

func (p *Plane) getLive(w http.ResponseWriter, _ *call) error {
	return reply(w, http.StatusOK, map[string]bool{"live": true})
}

// getReady says whether the plane has a state that it acts on. Details are for
// those who may read.
func (p *Plane) getReady(w http.ResponseWriter, c *call) error {
	q, err := c.query("verbose")
	if err != nil {
		return err
	}
	out := map[string]any{"ready": true}
	if q.Has("verbose") && c.who.Role.Includes(RoleRead) {
		st := p.store.Status()
		p.write.Lock()
		degraded, at := maps.Clone(p.degraded), p.lastSync
		p.write.Unlock()
		if !st.Durable {
			degraded["store"] = "what is changed does not survive a restart"
		}
		failures, missing := p.history.Health()
		out["degraded"], out["store"] = degraded, storeView{st.Kind, st.Durable}
		out["lastSync"], out["uptimeSeconds"] = at.UTC(), time.Since(p.started).Seconds()
		out["history"] = map[string]any{"failures": failures, "missing": missing, "faults": p.history.Faults(), "head": p.history.Head()}
	}
	return reply(w, http.StatusOK, out)
}

func (p *Plane) getOpenAPI(w http.ResponseWriter, _ *call) error {
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
	_, _ = w.Write(openAPI)
	return nil
}

func (p *Plane) getMetrics(w http.ResponseWriter, c *call) error {
	if p.opts.Metrics == nil {
		return newProblem("not-found", "metrics are served elsewhere")
	}
	p.opts.Metrics.ServeHTTP(w, c.Request)
	return nil
}
