// Package core holds the words of the Model Context Protocol's interceptors
// extension (SEP-2624): validators and mutators, the hooks that say which
// events they see, what they are given and what they answer, and the JSON
// forms of all of these.
//
// The package knows no MCP library, no telemetry and no HTTP. Package chain
// runs what is described here, package mcpext puts it on an MCP server.
//
// An author writes data and a handler:
//
//	guard := core.Validator{
//		Metadata: core.Metadata{
//			Name:  "acme/no-deletes",
//			Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
//		},
//		Handler: func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
//			var call struct{ Name string `json:"name"` }
//			if err := inv.Decode(&call); err != nil {
//				return nil, err
//			}
//			if call.Name == "delete" {
//				return core.Deny("deletes are not allowed"), nil
//			}
//			return core.Allow(), nil
//		},
//	}
//
// # Concurrency
//
// Values of this package are plain data. What is handed to a handler belongs
// to it until the handler returns; what a handler returns belongs to its
// caller from then on.
//
// # Errors
//
// Decoding refuses what it does not understand: a wrong word, a wrong type or
// a missing verdict is an error that says where, never a pass.
package core
