package admin

import (
	"net/http"
	"strings"
)

func (p *Plane) putOverride(w http.ResponseWriter, c *call) error {
	name, err := c.name()
	if err != nil {
		return err
	}
	ch, err := p.beginChange(c)
	if err != nil {
		return err
	}
	body, err := c.body(w)
	if err != nil {
		return err
	}
	done, err := p.setOverride(c.Context(), name, body, ch)
	if err != nil {
		return err
	}
	return p.changedItem(w, name, done, ch)
}

func (p *Plane) deleteOverride(w http.ResponseWriter, c *call) error {
	name, err := c.name()
	if err != nil {
		return err
	}
	ch, err := p.beginChange(c)
	if err != nil {
		return err
	}
	if err := p.reasonOf(c, ch); err != nil {
		return err
	}
	done, err := p.clearOverride(c.Context(), name, ch)
	if err != nil {
		return err
	}
	return p.changedItem(w, name, done, ch)
}

// maxReason bounds a reason in a header.
const maxReason = 500

// reasonOf reads the header Change-Reason, which writes without a body have.
func (p *Plane) reasonOf(c *call, ch *change) error {
	reason := strings.TrimSpace(c.Header.Get("Change-Reason"))
	if len(reason) > maxReason {
		return newProblem("invalid", "Change-Reason is longer than 500 bytes")
	}
	ch.record.Reason = strings.ToValidUTF8(reason, "\uFFFD")
	return nil
}

// changedItem answers a write to one interceptor.
func (p *Plane) changedItem(w http.ResponseWriter, name string, done *changed, ch *change) error {
	it := done.state.items[name]
	if it == nil {
		it = standing(name, nil, done.record.Revision)
	}
	v := changeView{
		itemView: viewItem(name, it), Change: viewRecord(&done.record), Persisted: p.persisted(done), DryRun: ch.dryRun, Noop: done.noop,
	}
	_, f := p.stats.view(name)
	if !ch.dryRun && !done.noop {
		v.Draining = p.draining(it, f.policies)
	}
	w.Header().Set("ETag", it.tag())
	if done.record.ID != "" && !ch.dryRun && !done.noop {
		w.Header().Set("Location", "../../changes/"+done.record.ID) // relative: what it is mounted under is unknown
	}
	return reply(w, http.StatusOK, v)
}

type glassChangeView struct {
	glassView
	Change    changedView   `json:"change"`
	Persisted persistedView `json:"persisted"`
	DryRun    bool          `json:"dryRun,omitempty"`
	Noop      bool          `json:"noop,omitempty"`
}

// putBreakGlass asks for no If-Match: it is for when there is no time.
func (p *Plane) putBreakGlass(w http.ResponseWriter, c *call) error {
	ch, err := p.beginChange(c)
	if err != nil {
		return err
	}
	body, err := c.body(w)
	if err != nil {
		return err
	}
	done, err := p.breakGlass(c.Context(), body, ch)
	if err != nil {
		return err
	}
	return p.changedGlass(w, done, ch)
}

func (p *Plane) deleteBreakGlass(w http.ResponseWriter, c *call) error {
	ch, err := p.beginChange(c)
	if err != nil {
		return err
	}
	if err := p.reasonOf(c, ch); err != nil {
		return err
	}
	done, err := p.mendGlass(c.Context(), ch)
	if err != nil {
		return err
	}
	return p.changedGlass(w, done, ch)
}

func (p *Plane) changedGlass(w http.ResponseWriter, done *changed, ch *change) error {
	w.Header().Set("ETag", done.state.tag())
	return reply(w, http.StatusOK, glassChangeView{
		glassView: viewGlass(done.state), Change: viewRecord(&done.record), Persisted: p.persisted(done), DryRun: ch.dryRun, Noop: done.noop,
	})
}
