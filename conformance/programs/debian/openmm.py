# package: python3-simtk libopenmm-plugins
# kind: molecular dynamics: fifty steps of argon, energies and a position
import openmm as mm

system = mm.System()
force = mm.NonbondedForce()
force.setNonbondedMethod(mm.NonbondedForce.CutoffPeriodic)
force.setCutoffDistance(0.9)
positions = []
for i in range(6):
    for j in range(6):
        for k in range(6):
            system.addParticle(39.9)
            force.addParticle(0, 0.34, 0.99)
            positions.append(mm.Vec3(i * 0.4, j * 0.4, k * 0.4))
system.addForce(force)
system.setDefaultPeriodicBoxVectors((2.4, 0, 0), (0, 2.4, 0), (0, 0, 2.4))
integrator = mm.VerletIntegrator(0.002)
context = mm.Context(system, integrator, mm.Platform.getPlatformByName("OpenCL"))
context.setPositions(positions)
integrator.step(50)
state = context.getState(getEnergy=True, getPositions=True)
print("potential %.2f kinetic %.2f" % (state.getPotentialEnergy()._value, state.getKineticEnergy()._value))
print("%.4f %.4f %.4f" % tuple(state.getPositions()[17]._value))
