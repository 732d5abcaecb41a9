package core

import (
	"context"
	"errors"
	"fmt"
)

// An Interceptor is a [Validator] or a [Mutator]. The set is closed.
type Interceptor interface {
	// Describe returns the type and a copy of the metadata, phases expanded.
	Describe() Descriptor

	// answer calls the handler and checks what it returned.
	answer(ctx context.Context, inv *Invocation) (Answer, error)
	// ready reports a missing handler.
	ready() error
}

var (
	_ Interceptor = Validator{}
	_ Interceptor = Mutator{}
)

// A Validator inspects a payload and says whether it may pass.
type Validator struct {
	Metadata
	// Handler is called for each message; several calls may run at once. It
	// must not change the payload, must return promptly once ctx is done, and
	// must answer a non-nil result or an error. An error, a panic or a
	// malformed result is a failure, which blocks unless FailOpen is set.
	Handler func(ctx context.Context, inv *Invocation) (*ValidationResult, error)
}

// A Mutator may replace a payload.
type Mutator struct {
	Metadata
	// Handler is called for each message; several messages may be handled at
	// once. The payload it gets is its own copy. It must answer a non-nil
	// result or an error; failures are treated as a validator's are.
	Handler func(ctx context.Context, inv *Invocation) (*MutationResult, error)
}

// Describe returns the validator's descriptor.
func (v Validator) Describe() Descriptor {
	return Descriptor{Type: TypeValidation, Metadata: v.Metadata.normalized()}
}

// Describe returns the mutator's descriptor.
func (m Mutator) Describe() Descriptor {
	return Descriptor{Type: TypeMutation, Metadata: m.Metadata.normalized()}
}

var errNoHandler = errors.New("no handler")

func (v Validator) ready() error {
	if v.Handler == nil {
		return errNoHandler
	}
	return nil
}

func (m Mutator) ready() error {
	if m.Handler == nil {
		return errNoHandler
	}
	return nil
}

func (v Validator) answer(ctx context.Context, inv *Invocation) (Answer, error) {
	res, err := v.Handler(ctx, inv)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Validation: res}.Checked(TypeValidation)
}

func (m Mutator) answer(ctx context.Context, inv *Invocation) (Answer, error) {
	res, err := m.Handler(ctx, inv)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Mutation: res}.Checked(TypeMutation)
}

// CheckInterceptor joins all faults of an interceptor: nil, no handler, and
// what [Metadata.Check] finds.
func CheckInterceptor(i Interceptor) (err error) {
	if i == nil {
		return errors.New("nil interceptor")
	}
	// A nil *Validator satisfies the interface too, and its methods panic.
	defer func() {
		if recover() != nil {
			err = errors.New("nil interceptor")
		}
	}()
	d := i.Describe()
	return errors.Join(d.Metadata.Check(), i.ready())
}

// Call runs an interceptor's handler on inv and checks its answer: an answer
// that is missing or malformed is an error that wraps [ErrMalformed]. It does
// not contain panics and sets no deadline; package chain does.
func Call(ctx context.Context, i Interceptor, inv *Invocation) (Answer, error) {
	return i.answer(ctx, inv)
}

// An Answer is what an interceptor said: one of the two is set.
type Answer struct {
	Validation *ValidationResult
	Mutation   *MutationResult

	checked Type // the type that the answer was checked for
}

// ErrMalformed is wrapped by errors about an answer that is missing or does
// not follow SEP-2624. Such an answer is a failure, never a pass.
var ErrMalformed = errors.New("malformed result")

// Check says whether the answer is one that an interceptor of type t may give.
func (a Answer) Check(t Type) error {
	_, err := a.Checked(t)
	return err
}

// Checked returns the answer as it is to be used, if it is one that an
// interceptor of type t may give: free data in it has become plain JSON
// values, so that nothing of the handler's runs when it is looked at later. It
// may run that data's own encoders; an answer is checked once.
func (a Answer) Checked(t Type) (out Answer, err error) {
	switch {
	case a.checked == t && t != "":
		return a, nil
	case t == TypeValidation && a.Validation != nil && a.Mutation == nil:
		if err = a.Validation.check(); err == nil {
			out.Validation, err = a.Validation.plain()
		}
	case t == TypeMutation && a.Mutation != nil && a.Validation == nil:
		if err = a.Mutation.check(); err == nil {
			out.Mutation, err = a.Mutation.plain()
		}
	case a.Validation == nil && a.Mutation == nil:
		err = fmt.Errorf("%w: no %s result", ErrMalformed, t)
	default:
		err = fmt.Errorf("%w: not a %s result", ErrMalformed, t)
	}
	if err != nil {
		return Answer{}, err
	}
	out.checked = t
	return out, nil
}

// isObject reports whether data is one valid JSON object.
func isObject(data []byte) bool {
	return Valid(data) && firstByte(data) == '{'
}

// firstByte returns the first byte of data that is not white space.
func firstByte(data []byte) byte {
	for _, b := range data {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b
		}
	}
	return 0
}
