// Package dashboards has Headgate's Grafana dashboards, recording and alert rules
// as files. [Files] is for embedders that serve them; headgate dashboards writes
// them to a folder.
//
// They are generated: the source stands in generator, a module of its own.
package dashboards
