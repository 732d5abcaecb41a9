package telemetry

import (
	"fmt"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A budgetLine is how many series a metric can have at most, and why.
type budgetLine struct {
	metric  string
	formula string
	series  int
}

// serverErrors are the values of error_type on the receiving side: the codes
// that are the caller's fault are none.
const serverErrors = errorCodes + 1

// seriesOf is how many series a histogram has: its buckets, +Inf, sum and count.
func seriesOf(d *definition) int { return len(d.buckets) + 3 }

// budget returns the worst case of each metric, all caps reached: every method,
// tool and interceptor there can be, each in every state, over both transports.
// An interceptor's type is fixed by its name.
func budget(maxTools, maxInterceptors int) []budgetLine {
	c := newCatalog()
	methods := len(core.StandardMethods()) + maxCustom + 1 // and _OTHER
	operations := methods - 1 + maxTools + 1               // tools/call has a series for each tool and _OTHER
	named := maxInterceptors + 1                           // and _OTHER
	failures := len(failureReasons(core.TypeValidation))
	of := func(d *definition, formula string, factors ...int) budgetLine {
		n, text := 1, []any{}
		for _, f := range factors {
			n *= f
			text = append(text, f)
		}
		return budgetLine{d.name, fmt.Sprintf(formula, text...), n}
	}
	perPhase := func(d *definition, reasons int) budgetLine {
		return of(d, "%d interceptors × %d phases × %d reasons", named, phases, reasons)
	}
	op := "%d methods and tools × %d errors × %d transports × %d"
	lines := []budgetLine{
		of(&c.serverOperation, op, operations, serverErrors, 2, seriesOf(&c.serverOperation)),
		of(&c.clientOperation, op, operations, len(errorTypes()), 2, seriesOf(&c.clientOperation)),
		// _OTHER may stand for validators and mutators.
		of(&c.invoke, "%d interceptors × %d modes × %d phases × %d verdicts × %d", named+1, modes, phases, verdicts-1, seriesOf(&c.invoke)),
		of(&c.stage, "%d events × %d stages × %d", methods, phases*5+1, seriesOf(&c.stage)),
		of(&c.payload, "%d events × %d phases × %d", methods, phases, seriesOf(&c.payload)),
		perPhase(&c.aborts, failures+2), perPhase(&c.auditDenials, 1),
		perPhase(&c.auditFailures, failures+1), perPhase(&c.failOpen, failures+1),
		of(&c.auditDropped, "%d interceptors", named), of(&c.skipped, "%d interceptors × %d phases", named, phases),
		of(&c.refused, "%d interceptors × %d limits", named, len(chain.Limits())),
		of(&c.inflight, "%d interceptors", named), of(&c.abandoned, "%d interceptors", named),
		of(&c.circuitState, "%d interceptors", named), of(&c.circuitOpened, "%d interceptors", named),
		of(&c.hostUp, "%d hosts", maxHosts+1), of(&c.hostLosses, "%d hosts", maxHosts+1),
		of(&c.info, "%d interceptors", named), of(&c.overflow, "%d labels", len(newNames(&Options{}).counted())),
	}
	return lines
}

// worstCase is how many series there can be.
func worstCase(maxTools, maxInterceptors int) int {
	n := 0
	for _, line := range budget(maxTools, maxInterceptors) {
		n += line.series
	}
	return n
}
