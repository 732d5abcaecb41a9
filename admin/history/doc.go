// Package history keeps the record of what was changed over an admin plane, by
// whom and why: one JSON object a line, each with the hash of the one before, so
// that an edit shows. [Open] appends, [Verify] checks.
package history
