// Package proof holds no code but tests, of promises that are made about all of
// Headgate and that no package of its own can hold: whatever audit interceptors
// do, clients notice nothing; whatever goes wrong, no message gets past a guard
// that would deny it, and none that was stopped is missing from the records;
// nothing can be exhausted; nothing is left behind.
//
// Messages, pipelines and faults are drawn from a seed, which each failure
// prints. HEADGATE_PROOF_SEED repeats a run, HEADGATE_PROOF_SCALE multiplies how
// much is drawn (0.1 for a quick look, 10 for a night). Interceptor servers that
// misbehave are other processes: the test binary, started again.
//
// TestSoak lasts two seconds, or as long as HEADGATE_PROOF_SOAK says; make soak
// has it last two minutes.
package proof
