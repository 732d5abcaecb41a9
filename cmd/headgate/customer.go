package main

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// A customer is made up: nobody has this name, address and card.
type customer struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
	Card  string `json:"card"`
}

// newCustomer makes the customer up from the id, always the same.
func newCustomer(id string) customer {
	given := []string{"Ada", "Edsger", "Grace", "Alan", "Barbara", "Tony", "Margaret", "Dennis"}
	family := []string{"Appletree", "Brook", "Castle", "Dale", "Elder", "Fielding", "Grove", "Hill"}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	seed := h.Sum64()
	name := given[seed%8] + " " + family[seed/8%8]
	return customer{
		ID:    id,
		Name:  name,
		Email: strings.ToLower(strings.ReplaceAll(name, " ", ".")) + "@example.com",
		Card:  card(seed / 64),
	}
}

// card returns a card number with a right check digit, in groups of four.
func card(seed uint64) string {
	digits := fmt.Sprintf("4%014d", seed%1e14)
	sum := 0
	for i, d := range digits {
		n := int(d - '0')
		if i%2 == 0 { // every second digit, counted from the check digit
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	digits += string(rune('0' + (10-sum%10)%10))
	return digits[0:4] + " " + digits[4:8] + " " + digits[8:12] + " " + digits[12:]
}
