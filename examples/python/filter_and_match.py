"""Filters in SQL: what they match, and an index that says who wants a publication."""

import postroad

wanted = postroad.parse("class = 'quotes' AND price > 100 AND symbol IN ('IBM', 'SAP')")
print(postroad.matches(wanted, {"class": "quotes", "symbol": "SAP", "price": 120.5}))
print(postroad.covers(postroad.parse("price > 100"), wanted))

index: postroad.Index[str] = postroad.Index()
index.insert("ann", wanted)
index.insert("bob", postroad.parse("class = 'quotes' AND price < 50"))
index.insert("eve", postroad.parse("class = 'news'"))
for price in (20, 120):
    print(price, index.match({"class": "quotes", "symbol": "IBM", "price": price}))
