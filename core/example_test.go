package core_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/headgate-mcp/headgate/core"
)

func ExampleValidator() {
	guard := core.Validator{
		Metadata: core.Metadata{
			Name:  "acme/no-deletes",
			Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
		},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			var call struct {
				Name string `json:"name"`
			}
			if err := inv.Decode(&call); err != nil {
				return nil, err
			}
			if call.Name == "delete" {
				return core.Deny("deletes are not allowed"), nil
			}
			return core.Allow(), nil
		},
	}
	for _, payload := range []string{`{"name":"read"}`, `{"name":"delete"}`, `{"Name":"delete"}`} {
		answer, err := core.Call(context.Background(), guard, &core.Invocation{Payload: json.RawMessage(payload)})
		if err != nil {
			fmt.Println(payload, "fails:", err)
			continue
		}
		fmt.Println(payload, "rejected:", answer.Validation.Verdict().Rejects)
	}
	// Output:
	// {"name":"read"} rejected: false
	// {"name":"delete"} rejected: true
	// {"Name":"delete"} fails: core: key differs in case: "Name", want "name"
}

func ExampleMutator() {
	stamp := core.Mutator{
		Metadata: core.Metadata{
			Name:         "acme/stamp",
			Hooks:        []core.Hook{{Events: []string{"tools/*"}, Phase: core.PhaseBoth}},
			PriorityHint: core.ResponsePriority(1000), // last on the way back
		},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			var payload map[string]any
			if err := inv.Decode(&payload); err != nil {
				return nil, err
			}
			payload["seen"] = true
			raw, err := core.Encode(payload)
			if err != nil {
				return nil, err
			}
			return core.Replace(raw), nil
		},
	}
	entry, _ := core.Encode(stamp.Describe())
	fmt.Println(string(entry))

	inv := &core.Invocation{Payload: json.RawMessage(`{"id":9007199254740993,"text":"a < b"}`)}
	answer, err := core.Call(context.Background(), stamp, inv)
	fmt.Println(string(answer.Mutation.Payload), err)
	// Output:
	// {"name":"acme/stamp","type":"mutation","hooks":[{"events":["tools/*"],"phase":"request"},{"events":["tools/*"],"phase":"response"}],"priorityHint":{"response":1000}}
	// {"id":9007199254740993,"seen":true,"text":"a < b"} <nil>
}

func ExampleDecode() {
	var args struct {
		Table string `json:"table"`
		Where any    `json:"where"`
	}
	for _, data := range []string{
		`{"table":"t","where":{"id":18446744073709551615}}`,
		`{"table":"t","Where":"x"}`,
		`{"table":"harmless","\u0074able":"t"}`,
	} {
		if err := core.Decode([]byte(data), &args); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(args.Table, args.Where)
	}
	// Output:
	// t map[id:18446744073709551615]
	// core: key differs in case: "Where", want "where"
	// core: duplicate key "table"
}
