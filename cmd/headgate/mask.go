package main

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// What stands in the place of what was masked. A number becomes a number, so
// that a result still fits its tool's output schema.
const (
	maskEmail  = "[email]"
	maskCard   = "[card]"
	maskNumber = "0"
)

// minCard is how many digits the shortest card numbers have.
const minCard = 13

// A masker finds personal data in text and numbers. It would rather mask too
// much: no @ and no run of 13 digits is left, be it an address or not.
type masker struct {
	email, card *regexp.Regexp
}

func newMasker() *masker {
	const (
		// What an address is made of, with its look-alikes of the at sign.
		atom = "[\\pL\\pM\\pN.!#$%*+^_`~|-]"
		at   = `[@\x{FF20}\x{FE6B}]`
		// A full stop behind an address belongs to the sentence.
		domain = "(?:(?:" + atom + "|" + at + `)*(?:[\pL\pM\pN]|` + at + "))?"
		// Card numbers are written in groups: spaces and dashes of all kinds
		// may stand between digits.
		gap = `[\t\p{Zs}\p{Pd}\p{Cf}\x{2212}]{0,3}`
	)
	return &masker{
		email: regexp.MustCompile(atom + "*" + at + domain),
		card:  regexp.MustCompile(`\p{Nd}(?:` + gap + `\p{Nd}){12,}`),
	}
}

// text masks addresses and card numbers in plain text. Most has neither an at
// sign nor as many digits, and is not searched.
func (m *masker) text(s string) string {
	if strings.ContainsAny(s, "@\uFF20\uFE6B") {
		s = m.email.ReplaceAllLiteralString(s, maskEmail)
	}
	if !manyDigits(s) {
		return s
	}
	return m.card.ReplaceAllLiteralString(s, maskCard)
}

// manyDigits reports whether there may be as many digits as a card number has.
// What is not ASCII may be one.
func manyDigits(s string) bool {
	n := 0
	for i := range len(s) {
		if b := s[i]; b >= '0' && b <= '9' || b >= utf8.RuneSelf {
			n++
		}
	}
	return n >= minCard
}

// number masks a JSON number that could be a card number, in whatever way it
// is written.
func (m *masker) number(literal string) string {
	if countDigits(literal) >= minCard { // in the exponent too: there is room for a card
		return maskNumber
	}
	// 4e15 has few digits, until somebody reads and writes it.
	if v, err := strconv.ParseFloat(strings.TrimPrefix(literal, "-"), 64); err == nil && v >= 1e12 && v < 1e19 {
		return maskNumber
	}
	return literal
}

func countDigits(s string) int {
	n := 0
	for _, r := range s {
		if r >= '0' && r <= '9' {
			n++
		}
	}
	return n
}
